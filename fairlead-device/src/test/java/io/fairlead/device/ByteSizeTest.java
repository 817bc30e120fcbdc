package io.fairlead.device;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ByteSizeTest {

  @ParameterizedTest
  @CsvSource({
    "1, 1",
    "1048576, 1048576",
    "512k, 524288",
    "512m, 536870912",
    "4g, 4294967296",
    "4 GiB, 4294967296",
    "2TB, 2199023255552",
    "100b, 100"
  })
  void readsWhatPeopleWrite(String text, long bytes) {
    assertThat(ByteSize.parse(text)).isEqualTo(bytes);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "m", "-1", "1.5g", "12 parsecs", "4gg", "0", "0m"})
  void refusesWhatIsNoSize(String text) {
    assertThatThrownBy(() -> ByteSize.parse(text))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("'" + text + "'");
  }

  @Test
  void readsNothingWhereThatIsMeant() {
    assertThat(ByteSize.parseOrNone("0")).isZero();
    assertThat(ByteSize.parseOrNone("0g")).isZero();
    assertThat(ByteSize.parseOrNone("1k")).isEqualTo(1024);
    assertThatThrownBy(() -> ByteSize.parseOrNone("-1"))
        .hasMessage("'-1' is no size; write bytes, or a number with k, m, g or t: 512m, 4g");
  }

  @Test
  void refusesMoreThanThereCanBe() {
    assertThatThrownBy(() -> ByteSize.parse("9999999999g"))
        .isInstanceOf(IllegalArgumentException.class)
        .hasMessageContaining("more bytes than there can be");
    assertThatThrownBy(() -> ByteSize.parse("9999999999999999999"))
        .isInstanceOf(IllegalArgumentException.class);
  }
}
