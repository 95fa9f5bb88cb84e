#include "worker/offload/tier.h"

const char *zt_memory_place_name(zt_memory_place place)
{
    static const char *const names[ZT_NUM_PLACES] = {
        [ZT_PLACE_DEVICE] = "device",
        [ZT_PLACE_PINNED] = "pinned host",
        [ZT_PLACE_HOST] = "host",
        [ZT_PLACE_FILE] = "file",
    };

    return names[place];
}
