package io.fairlead.cli.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.fairlead.cli.Json;
import java.util.List;
import org.junit.jupiter.api.Test;

class RowTest {
  @Test
  void medianAndTail() {
    Samples samples = Samples.of(5, 1, 3, 2, 4);
    assertThat(samples.median()).isEqualTo(3);
    assertThat(samples.p99()).isEqualTo(5);
    assertThat(Samples.of(1, 2).median()).isEqualTo(1.5);
  }

  @Test
  void ratioIsTakenPairByPair() {
    Row row = Row.ratio("r", Samples.of(2, 30, 8), Samples.of(1, 10, 4));
    assertThat(row.value()).isEqualTo(2);
    assertThat(row.baseline()).isEqualTo(4);
    assertThat(row.n()).isEqualTo(3);
    assertThat(row.p99()).isEqualTo(3, within(1e-12));
  }

  @Test
  void verdictFollowsTheBounds() {
    Row lower = Row.exact("r", "x", "lower", 1.2);
    assertThat(lower.bounds(1.3, 1.1).verdict()).isEqualTo("kept");
    assertThat(lower.bounds(1.3, 1.25).verdict()).isEqualTo("goal");
    assertThat(lower.bounds(1.0, null).verdict()).isEqualTo("MISSED");
    assertThat(Row.exact("r", "x", "higher", 4).bounds(3.0, 5.0).verdict()).isEqualTo("kept");
    assertThat(lower.verdict()).isEmpty();
  }

  @Test
  void aRowWithoutAFigureSaysWhy() {
    Row row = Row.missing("some.id", "did not end");
    assertThat(row.verdict()).isEqualTo("did not end");
    assertThat(Table.of(List.of(row))).contains("some.id", "did not end");
    assertThat(Json.text(row.toMap())).contains("\"value\": null", "\"missing\": \"did not end\"");
  }

  @Test
  void theTableAndTheMapHaveEveryField() {
    Row row = Row.exact("some.id", "us", "lower", 2).against(4).bounds(3.0, 1.0);
    assertThat(Table.of(List.of(row))).contains("some.id", "us", "0.5", "<= 3", "must", "kept");
    assertThat(row.toMap())
        .containsOnlyKeys(
            "id",
            "value",
            "unit",
            "better",
            "baseline",
            "ratio",
            "n",
            "p50",
            "p99",
            "must",
            "goal",
            "missing");
  }
}
