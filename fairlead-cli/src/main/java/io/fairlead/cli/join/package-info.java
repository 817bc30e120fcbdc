/**
 * {@code fairlead join}: two tables joined and grouped on a device whose memory need not hold them.
 *
 * <p>Receives CSV files or what to generate, and an open runtime. Hands groups (key, how many
 * joined rows, sums), and what moved between the tiers on the way. {@link
 * io.fairlead.cli.join.DeviceJoin} is the join; everything else brings rows to it or takes groups
 * from it.
 */
@NullMarked
package io.fairlead.cli.join;

import org.jspecify.annotations.NullMarked;
