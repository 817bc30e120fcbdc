package io.fairlead.cli;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
  @Test
  void writesWhatReportsNeed() {
    Map<String, Object> map = new LinkedHashMap<>();
    map.put("a", 1);
    map.put("b", Arrays.asList("x\"\\\n\u0001é", null, true));
    map.put("c", Map.of());
    map.put("d", List.of());
    map.put("e", 0.1);
    map.put("f", Double.NaN);
    map.put("g", Double.POSITIVE_INFINITY);
    assertThat(Json.text(map))
        .isEqualTo(
            """
            {
              "a": 1,
              "b": [
                "x\\"\\\\\\n\\u0001é",
                null,
                true
              ],
              "c": {},
              "d": [],
              "e": 0.1,
              "f": null,
              "g": null
            }""");
  }
}
