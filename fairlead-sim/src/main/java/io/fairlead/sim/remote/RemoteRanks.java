package io.fairlead.sim.remote;

import io.fairlead.comm.spi.Transport;
import io.fairlead.comm.spi.TransportSettings;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * The suite's side of ranks in other processes, each of which runs {@link RankAgent#serve}. Made
 * once for a suite; worlds of any number of these ranks are opened one after the other.
 *
 * <p>Threads: one, the suite's. Waits are bounded: a rank that does not come, or falls silent, is
 * an {@link IOException} or {@link java.io.UncheckedIOException}.
 */
public final class RemoteRanks implements AutoCloseable {
  private static final int BACKLOG = 64;
  private static final int COMING_MILLIS_MAX = 60_000;

  private final ServerSocket server;
  private final List<Line> lines = new ArrayList<>();

  /** Begins to listen on this host. */
  public RemoteRanks() throws IOException {
    this.server = new ServerSocket(0, BACKLOG, InetAddress.getLoopbackAddress());
    server.setSoTimeout(COMING_MILLIS_MAX);
  }

  /** Where ranks connect to. */
  public int port() {
    return server.getLocalPort();
  }

  /** Waits until so many ranks are there. */
  public void await(int count) throws IOException {
    Line[] arrived = new Line[count];
    for (int i = 0; i < count; i++) {
      Socket socket = server.accept();
      Line line = new Line(socket);
      line.limitSilence();
      arrived[line.number()] = line;
    }
    for (Line line : arrived) {
      lines.add(Objects.requireNonNull(line, "a rank came twice"));
    }
  }

  /** Opens a world of the first ranks, as many as the settings say. */
  public List<Transport> open(TransportSettings settings) {
    List<RemoteTransport> all = lines.stream().map(RemoteTransport::new).toList();
    for (RemoteTransport each : all) {
      each.beginOpen(settings.ranks(), settings.eagerBytes(), settings.eagerMessages());
    }
    List<RemoteTransport> opened = new ArrayList<>();
    for (RemoteTransport each : all) {
      if (each.endOpen()) {
        opened.add(each);
      }
    }
    opened.forEach(each -> each.world(opened));
    return List.copyOf(opened);
  }

  /** Tells the ranks that it is over. */
  @Override
  public void close() throws IOException {
    for (Line line : lines) {
      line.number(0).say(Word.EXIT).flush();
      line.close();
    }
    lines.clear();
    server.close();
  }
}
