package io.fairlead.device;

/**
 * A recorded event of one stream: whoever waits for {@code event} comes after operation {@code
 * sequence} of that stream and after {@code clock}.
 *
 * <p>An event stays with its stream for life and is only ever recorded there again, later. So a
 * checkpoint that somebody still holds while its event is being recorded anew promises less than
 * the event gives: it can order too much, never too little. That is why no lock and no reference
 * count guards it.
 */
record Checkpoint(long event, long sequence, Clock clock) {}
