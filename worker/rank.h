/* rank.h -- the life of one rank, from its command line to its exit code. */
#ifndef WORKER_RANK_H
#define WORKER_RANK_H

/*
 * argv[0] is the program, argv[1] the plugin (train.so), the rest its options. The place
 * in the job comes from RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (one rank without
 * them). Returns the process exit code; has printed or reported every failure.
 */
int zt_rank_main(int argc, char **argv);

#endif
