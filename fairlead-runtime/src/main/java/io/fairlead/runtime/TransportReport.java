package io.fairlead.runtime;

/**
 * What a transport on the path says of itself.
 *
 * @param name as {@link FairleadConfig#transport} takes it
 * @param text what it is if it is available, which may be nothing; else why it is not
 */
public record TransportReport(String name, boolean available, String text) {}
