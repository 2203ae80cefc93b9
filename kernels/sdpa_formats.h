/* What the formats of K and V are, for who must not know them by name: dense ones have elements, packed ones have rows
 * only. Keys of a rotated format meet a rotated query, and sums of its values are rotated back, once. The values of a
 * packed row are codes times a factor, and plus a bias in a biased format, which a group of elements or the whole row
 * shares; a dense row counts as one group. Needs before it: format_any.h, HEAD_SIZE, V_HEAD_SIZE, and wherever these
 * are used K_FORMAT and V_FORMAT. */
#define K_PACKED JOIN(FORMAT_PACKED_, K_FORMAT)
#define V_PACKED JOIN(FORMAT_PACKED_, V_FORMAT)
#define K_ROTATED JOIN(FORMAT_ROTATED_, K_FORMAT)
#define V_ROTATED JOIN(FORMAT_ROTATED_, V_FORMAT)
#define K_ROW_SCALED JOIN(FORMAT_ROW_SCALED_, K_FORMAT)
#define V_ROW_SCALED JOIN(FORMAT_ROW_SCALED_, V_FORMAT)
#define K_BIASED JOIN(FORMAT_BIASED_, K_FORMAT)
#define V_BIASED JOIN(FORMAT_BIASED_, V_FORMAT)
#define K_GROUP JOIN(FORMAT_GROUP_, K_FORMAT)(HEAD_SIZE)
#define V_GROUP JOIN(FORMAT_GROUP_, V_FORMAT)(V_HEAD_SIZE)
#define K_GROUPS (HEAD_SIZE / K_GROUP)
#define V_GROUPS (V_HEAD_SIZE / V_GROUP)
#define K_ROW_BYTES JOIN(FORMAT_ROW_BYTES_, K_FORMAT)(HEAD_SIZE)
#define V_ROW_BYTES JOIN(FORMAT_ROW_BYTES_, V_FORMAT)(V_HEAD_SIZE)
