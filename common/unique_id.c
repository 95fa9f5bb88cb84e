#include "common/unique_id.h"

int zt_unique_id_count(int world, int ranks_per_id)
{
    return ranks_per_id < 1 || world <= ranks_per_id
               ? 1
               : (world + ranks_per_id - 1) / ranks_per_id;
}

/* The ranks in num_ids runs, of which the first ones have one rank more. */
int zt_unique_id_root(int world, int num_ids, int k)
{
    int more = world % num_ids;

    return k * (world / num_ids) + (k < more ? k : more);
}
