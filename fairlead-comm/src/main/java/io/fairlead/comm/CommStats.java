package io.fairlead.comm;

/**
 * What one rank's communicator has done so far; duplicates of it count together. A snapshot: the
 * numbers are read one after another while others run.
 *
 * @param sent sends, active messages and parts of collectives that were posted
 * @param received receives, active messages and parts of collectives that arrived
 * @param bytesSent their bytes
 * @param bytesReceived their bytes
 * @param collectives collectives begun
 * @param waitNanos the time that receives and collectives took from their start to their end, if
 *     they had not ended when they were started. Operations that overlap each count in full. Of
 *     receives one in 8 is timed and stands for all
 * @param shifted calls handed to the communication thread
 * @param refused calls that were refused because their queue was full
 * @param discarded messages that arrived for a receive cancelled at that moment
 * @param undelivered messages whose senders were told they are sent and that were not received
 *     before a communicator closed
 * @param submitted active messages submitted; counted before they are shifted or gated
 * @param handled active messages whose handler has ended
 * @param longTurns how often a handler, or a task on the communication thread, held that up for 20
 *     ms or more; a machine that is full counts too
 * @param longestTurnNanos the longest that one of them did
 */
public record CommStats(
    long sent,
    long received,
    long bytesSent,
    long bytesReceived,
    long collectives,
    long waitNanos,
    long shifted,
    long refused,
    long discarded,
    long undelivered,
    long submitted,
    long handled,
    long longTurns,
    long longestTurnNanos) {}
