package io.fairlead.runtime;

/**
 * What one driver says of itself before it is opened.
 *
 * @param name what a user selects it by
 * @param available whether it can be opened here
 * @param devices how many devices it has; 0 if it is not available
 * @param text its version, or why it is not available and what to do
 */
public record DriverReport(String name, boolean available, int devices, String text) {}
