/* What a work-item of a group of many takes of a row that is stored: all of it, or 16 elements where the format is
 * dense, side by side with the others. Needs before it: the formats, K_FORMAT and V_FORMAT. */

/* Elements that a work-item takes, and bytes of one in a dense row. */
#define ELEMENTS_AT_ONCE(FORMAT, size) (JOIN(FORMAT_PACKED_, FORMAT) ? (size) : 16)
#define BYTES_OF_ELEMENT(type) ((type) == TYPE_F32 ? 4u : 2u)
#if JOIN(FORMAT_PACKED_, K_FORMAT)
#define K_ELEMENT_BYTES 0 /* a row begins with its element 0 */
#else
#define K_ELEMENT_BYTES JOIN(FORMAT_ELEMENT_BYTES_, K_FORMAT)
#endif
#if JOIN(FORMAT_PACKED_, V_FORMAT)
#define V_ELEMENT_BYTES 0
#else
#define V_ELEMENT_BYTES JOIN(FORMAT_ELEMENT_BYTES_, V_FORMAT)
#endif
