package io.fairlead.cli;

import java.io.PrintWriter;
import java.io.StringWriter;

/** The command run in this process, with what it printed. */
record Run(int code, String out, String err) {
  static Run fairlead(Object... args) {
    StringWriter out = new StringWriter();
    StringWriter err = new StringWriter();
    String[] words = new String[args.length];
    for (int i = 0; i < args.length; i++) {
      words[i] = args[i].toString();
    }
    int code = Main.run(new PrintWriter(out), new PrintWriter(err), words);
    return new Run(code, out.toString(), err.toString());
  }
}
