package io.fairlead.comm.wire;

import io.fairlead.comm.spi.TransportException;
import java.util.ArrayDeque;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * All that is on its way to this rank, and what waits to be: for one of the bulk tags, or for
 * memory to pass through. A tag is used again only when its transfer has ended here, and the one
 * that was free longest comes first.
 *
 * <p>A transfer gets all its memory before it begins and keeps it to its end, so transfers never
 * wait for each other while they hold some.
 */
final class Landings {
  /** More at a time would only cut the memory that they share into smaller parts. */
  private static final int TAGS_MAX = 4096;

  private final Blocks staging = new Blocks(Rank.STAGING_BYTES);
  private final Queue<Integer> tags = new ArrayDeque<>();
  private final Queue<Inbound> waiting = new ArrayDeque<>();
  private final Set<Inbound> live = new LinkedHashSet<>();

  Landings(Rank rank) {
    int count = Math.min(rank.wire.bulkTags(), TAGS_MAX);
    for (int tag = 0; tag < count; tag++) {
      tags.add(tag);
    }
  }

  /** Lets the bytes come, now or when there is room. */
  void add(Inbound inbound) {
    inbound.live = true;
    inbound.channel.landing++;
    live.add(inbound);
    waiting.add(inbound);
    beginSome();
  }

  private void beginSome() {
    Inbound inbound;
    while ((inbound = waiting.peek()) != null) {
      Integer tag = tags.peek();
      Blocks.@Nullable Block[] blocks = tag == null ? null : blocks(inbound);
      if (tag == null || blocks == null) {
        return;
      }
      tags.remove();
      waiting.remove();
      inbound.begin(tag, blocks);
    }
  }

  /** As many blocks as the window has places; none if it needs none; null: not now. */
  private Blocks.@Nullable Block @Nullable [] blocks(Inbound inbound) {
    long bytes = inbound.stagingBytes();
    if (bytes == 0) {
      return new Blocks.@Nullable Block[0];
    }
    Blocks.@Nullable Block[] blocks = new Blocks.@Nullable Block[inbound.windowLength()];
    for (int i = 0; i < blocks.length; i++) {
      blocks[i] = staging.tryTake(bytes);
      if (blocks[i] == null) {
        giveBack(blocks, i);
        return null;
      }
    }
    return blocks;
  }

  private void giveBack(Blocks.@Nullable Block[] blocks, int count) {
    for (int i = 0; i < count; i++) {
      Blocks.Block block = blocks[i];
      if (block != null) {
        staging.give(block);
      }
    }
  }

  /** Called by the transfer, once, before it tells anybody. */
  void ended(Inbound inbound) {
    live.remove(inbound);
    inbound.live = false;
    inbound.channel.landing--;
    tags.add(inbound.tag());
    inbound.giveBlocks(staging);
    beginSome();
  }

  /** The world is over. What the library still writes, it writes to memory that must stay. */
  void abort(TransportException cause) {
    abandon(inbound -> true, cause);
  }

  /** The same for one channel, whose peers do not answer; its tags are not used again. */
  void giveUp(Channel channel, TransportException cause) {
    abandon(inbound -> inbound.channel.number == channel.number, cause);
  }

  private void abandon(Predicate<Inbound> which, TransportException cause) {
    List<Inbound> all = live.stream().filter(which).toList();
    all.forEach(live::remove);
    waiting.removeIf(which);
    for (Inbound inbound : all) {
      inbound.live = false;
      inbound.channel.landing--;
      inbound.broken(cause);
    }
  }

  int live() {
    return live.size();
  }
}
