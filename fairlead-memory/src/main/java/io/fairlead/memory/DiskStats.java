package io.fairlead.memory;

/**
 * The disk tier at one moment. Counts are since it was opened.
 *
 * @param bytesMax most bytes that files may take
 * @param bytes that files take, whole ones and those being written, and those that could not be
 *     removed
 * @param spareBytes that files without an image take, to be written over; not among {@code bytes}
 * @param images that can be read
 * @param written images that were published
 * @param rewritten of those, how many have the file of one that was gone
 * @param chunksWritten pieces of them
 * @param bytesWritten bytes of those pieces
 * @param chunksRead pieces that were read and are what was written
 * @param bytesRead bytes of those
 * @param refusals how often there was no room, or no trust in the disk, to begin with
 * @param errorsFull writings that failed because the disk is full
 * @param errorsUnusable writings that failed because the disk cannot be written to
 * @param errorsUnreadable reads that failed
 * @param errorsDamaged reads that found other bytes than were written
 * @param quarantines how often the tier stopped using the disk after an error
 * @param trials how often it tried whether the disk works again
 * @param leftovers directories of dead processes that were removed when it was opened
 * @param leftoverBytes bytes of the files in them
 * @param direct whether files go past the page cache
 */
record DiskStats(
    long bytesMax,
    long bytes,
    long spareBytes,
    long images,
    long written,
    long rewritten,
    long chunksWritten,
    long bytesWritten,
    long chunksRead,
    long bytesRead,
    long refusals,
    long errorsFull,
    long errorsUnusable,
    long errorsUnreadable,
    long errorsDamaged,
    long quarantines,
    long trials,
    int leftovers,
    long leftoverBytes,
    boolean direct) {}
