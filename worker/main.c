/*
 * zworker: a rank of a job (`zworker TARGET.so ...`), or with --daemon the process that
 * starts and watches the ranks of one node for zlaunch.
 */
#include "worker/daemon/daemon.h"
#include "worker/engine/rank.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF,
            0); /* through a pipe too, lines arrive when they are done */
    if (argc > 1 && strcmp(argv[1], "--daemon") == 0)
        return zt_daemon_main(argc - 1, argv + 1);
    return zt_rank_main(argc, argv);
}
