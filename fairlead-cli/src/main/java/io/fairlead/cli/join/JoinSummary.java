package io.fairlead.cli.join;

import io.fairlead.cli.Bytes;
import java.util.Locale;
import java.util.stream.Collectors;

/** How a join ended, for a person. */
final class JoinSummary {
  private JoinSummary() {}

  static String of(JoinOutcome o) {
    JoinOutcome.Usage used = o.usage();
    DeviceJoin.Run run = o.run();
    return String.format(
        Locale.ROOT,
        """
        joined %,d and %,d rows on %s: %,d groups of %,d joined rows
        sums        %s
        digest      %s
        device      %s, kernels %s
        cut         %d of %d tasks at once, %d streams, %d partitions, tables rebuilt %,d
        memory      %s of tables, %s of device memory, %s used at the most
        spilled     %,d buffers of %s, at the most %s on the host; %,d of %s came back
        disk        %s written, %s read, at the most %s there
        moved       %s up, %s down, %,d launches, %,d copies
        waits       %,d of together %.3f s
        time        read %.3f s, load %.3f s, partition %.3f s, join %.3f s: %,.0f rows/s
        %s""",
        o.input().left().rows(),
        o.input().right().rows(),
        o.input().keyName(),
        o.totals().groups(),
        o.joinedRows(),
        o.sums().isEmpty()
            ? "none"
            : o.sums().stream()
                .map(sum -> sum.name() + " = " + sum.text(o.totals()))
                .collect(Collectors.joining(", ")),
        o.digest(),
        used.deviceName(),
        run.kernels(),
        o.plan().tasks(),
        o.request().tasks(),
        o.request().streams(),
        o.plan().partitions(),
        run.rebuilt(),
        Bytes.text(o.input().workingSetBytes()),
        Bytes.text(used.limitBytes()),
        Bytes.text(used.peakBytes()),
        used.spills(),
        Bytes.text(used.moved().spilled()),
        Bytes.text(run.onHostMax()),
        used.returns(),
        Bytes.text(used.moved().returned()),
        Bytes.text(used.moved().toDisk()),
        Bytes.text(used.moved().fromDisk()),
        Bytes.text(run.onDiskMax()),
        Bytes.text(used.bytesUp()),
        Bytes.text(used.bytesDown()),
        used.launches(),
        used.copies(),
        used.waits(),
        used.waitNanos() * 1e-9,
        o.readSeconds(),
        run.load(),
        run.partition(),
        run.join(),
        o.rowsPerSecond(),
        checks(o));
  }

  private static String checks(JoinOutcome o) {
    return o.checks().entrySet().stream()
        .map(each -> "check       " + each.getKey() + ": " + each.getValue() + "\n")
        .collect(Collectors.joining());
  }
}
