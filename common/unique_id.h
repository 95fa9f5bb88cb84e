/*
 * unique_id.h -- the opaque ids by which ranks of a NCCL communicator find each other:
 * how many, and who makes which. More than one lets large groups start faster.
 */
#ifndef COMMON_UNIQUE_ID_H
#define COMMON_UNIQUE_ID_H

#define ZT_UNIQUE_ID_BYTES 128

/* One id for every `ranks_per_id` ranks, at least one. */
int zt_unique_id_count(int world, int ranks_per_id);

/* The rank that makes id k: the first of those that NCCL has meet by it. */
int zt_unique_id_root(int world, int num_ids, int k);

#endif
