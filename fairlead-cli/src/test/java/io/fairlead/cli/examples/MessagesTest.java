package io.fairlead.cli.examples;

import static org.assertj.core.api.Assertions.assertThat;

import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The examples of the guide give what they say, as ranks of one process; MpirunTest has others. */
@Timeout(60)
class MessagesTest {
  private static final FairleadConfig HOST =
      FairleadConfig.defaults().withDevice("host").withHostWorkers(1);

  @Test
  void theyGiveWhatTheySay() {
    try (Fairlead fairlead = Fairlead.open(HOST)) {
      List<String> said =
          fairlead.ranks(
              3,
              comm ->
                  "%d %.1f %d %d %d %s %b %s"
                      .formatted(
                          Messages.ring(comm),
                          Messages.sum(comm),
                          Messages.work(comm),
                          Messages.spread(comm),
                          Messages.tasks(fairlead, comm),
                          Messages.put(comm),
                          Messages.device(fairlead.device(), comm),
                          Messages.library(comm).orElseThrow()));
      assertThat(said)
          .containsExactly(
              "2 6.0 1023 31 31 [1, 2, 3] true 2",
              "0 6.0 1023 31 31 to rank 0 true 0",
              "1 6.0 1023 31 31 to rank 0 true 1");
    }
  }
}
