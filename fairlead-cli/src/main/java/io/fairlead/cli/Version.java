package io.fairlead.cli;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;
import picocli.CommandLine.IVersionProvider;

/** The version that was built, and the Java it runs on. */
public final class Version implements IVersionProvider {

  /** Made by the command line parser. */
  public Version() {}

  @Override
  public String[] getVersion() {
    return new String[] {"fairlead " + number() + " (Java " + Runtime.version() + ")"};
  }

  /** The project's version, such as {@code 0.1.0}. */
  public static String number() {
    try (InputStream in = Version.class.getResourceAsStream("version.properties")) {
      if (in == null) {
        return "unknown";
      }
      Properties properties = new Properties();
      properties.load(in);
      return properties.getProperty("version", "unknown");
    } catch (IOException e) {
      throw new UncheckedIOException("the jar's own version.properties cannot be read", e);
    }
  }
}
