/**
 * The memory of one host device: slabs, free space, and allocations in stream order.
 *
 * <p>Receives allocations and frees from the driver, twice each: when the call is made and when the
 * stream gets there. Hands out blocks; finds the block behind a device address. Not exported.
 */
@NullMarked
package io.fairlead.host.pool;

import org.jspecify.annotations.NullMarked;
