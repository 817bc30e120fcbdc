package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fairlead.cli.RanksAgree.DifferentSystemsException;
import io.fairlead.cli.RanksAgree.SaidElsewhereException;
import io.fairlead.runtime.Fairlead;
import io.fairlead.runtime.FairleadConfig;
import io.fairlead.runtime.RankBody;
import io.fairlead.solver.BadInputException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** All ranks begin, or all end with one exit code and one message. */
@Timeout(60)
class RanksAgreeTest {
  private static final BadInputException BAD =
      new BadInputException(Path.of("a.mtx"), 3, "what is this?");

  private static final class Fallen extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  private static <T> List<T> onThree(RankBody<T> body) {
    FairleadConfig config = FairleadConfig.defaults().withDevice("host").withHostWorkers(1);
    try (Fairlead fairlead = Fairlead.open(config)) {
      return fairlead.ranks(3, body);
    }
  }

  private static RuntimeException thrownBy(Runnable body) {
    try {
      body.run();
    } catch (RuntimeException thrown) {
      return thrown;
    }
    throw new AssertionError("nothing was thrown");
  }

  @Test
  void whereNobodyFailedAllGoOn() {
    List<Boolean> went =
        onThree(
            comm -> {
              RanksAgree.onGoing(comm, null);
              RanksAgree.onSystem(comm, 1, 2, 3);
              return true;
            });
    assertThat(went).containsExactly(true, true, true);
  }

  @Test
  void theFirstThatFailedSaysWhyAndAllEndWithItsCode() {
    List<RuntimeException> thrown =
        onThree(
            comm -> {
              RuntimeException own =
                  comm.rank() == 0 ? null : comm.rank() == 1 ? BAD : new Fallen();
              return thrownBy(() -> RanksAgree.onGoing(comm, own));
            });
    assertThat(thrown.get(1)).isSameAs(BAD);
    assertThat(thrown.get(0)).isInstanceOf(SaidElsewhereException.class);
    assertThat(thrown.get(2))
        .isInstanceOf(SaidElsewhereException.class)
        .hasCauseInstanceOf(Fallen.class);
    assertThat(thrown).extracting(Failures::code).containsOnly(ExitCode.BAD_INPUT);
    assertThat(thrown)
        .extracting(RanksAgreeTest::said)
        .containsExactly("", "a.mtx:3: what is this?\n", "");
  }

  private static String said(RuntimeException failure) {
    StringWriter text = new StringWriter();
    Failures.report(failure, new PrintWriter(text));
    return text.toString();
  }

  @Test
  void differentSystemsAreSaidByTheFirst() {
    List<RuntimeException> thrown =
        onThree(comm -> thrownBy(() -> RanksAgree.onSystem(comm, 5, comm.rank() == 2 ? 7 : 6)));
    assertThat(thrown.get(0)).isInstanceOf(DifferentSystemsException.class);
    assertThat(thrown).extracting(Failures::code).containsOnly(ExitCode.BAD_INPUT);
    assertThat(said(thrown.get(0))).contains("different systems").doesNotContain("bug");
    assertThat(said(thrown.get(1)) + said(thrown.get(2))).isEmpty();
  }

  @Test
  void whatAllFoundTheFirstSays() {
    assertThat(RanksAgree.said(0, BAD)).isSameAs(BAD);
    assertThatThrownBy(
            () -> {
              throw RanksAgree.said(1, BAD);
            })
        .isInstanceOf(SaidElsewhereException.class)
        .hasCause(BAD);
  }
}
