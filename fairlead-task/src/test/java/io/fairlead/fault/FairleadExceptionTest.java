package io.fairlead.fault;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class FairleadExceptionTest {
  @Test
  void saysWhatIsLostAndWhy() {
    IOException cause = new IOException("disk");
    assertThat(new TaskCancelledException(cause))
        .hasMessage("cancelled because of: java.io.IOException: disk")
        .hasCause(cause)
        .extracting(FairleadException::severity)
        .isEqualTo(Severity.TASK);
    assertThat(new TaskCancelledException(null)).hasMessage("cancelled").hasNoCause();
    assertThat(new EngineException("fft", "is closed", null))
        .hasMessage("engine 'fft': is closed")
        .satisfies(e -> assertThat(e.engine()).isEqualTo("fft"))
        .extracting(FairleadException::severity)
        .isEqualTo(Severity.OPERATION);
    assertThat(new DeadlineExceededException("the copy", Duration.ofMillis(5)))
        .hasMessage("the copy was not done after PT0.005S")
        .satisfies(e -> assertThat(e.deadline()).isEqualTo(Duration.ofMillis(5)));
    assertThat(new TaskInterruptedException("x").severity()).isEqualTo(Severity.TASK);
    assertThat(new TaskFailedException("x", cause)).hasCause(cause);
  }
}
