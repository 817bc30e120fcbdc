/**
 * Races of the step "task": completions, the doorbell and the retired list of owners.
 *
 * <p>Receives the public types of fairlead-task. Hands jcstress small states that two or three
 * threads change at once, with every outcome explained.
 */
@NullMarked
package io.fairlead.lab.task;

import org.jspecify.annotations.NullMarked;
