package io.fairlead.task;

import java.util.concurrent.ThreadFactory;

/** Where the virtual threads of tasks come from. */
interface TaskThreads {

  /** A thread that was not started, for this task's body. Any thread; never blocks. */
  Thread newThread(Task task, Runnable body);

  /** Virtual threads on the JDK's carriers: public API only. */
  TaskThreads JDK =
      new TaskThreads() {
        // No inherited thread-locals: state follows the task.
        private final ThreadFactory factory =
            Thread.ofVirtual().inheritInheritableThreadLocals(false).factory();

        @Override
        public Thread newThread(Task task, Runnable body) {
          return factory.newThread(body);
        }
      };
}
