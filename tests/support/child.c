/* SPDX-License-Identifier: Apache-2.0
 *
 * See child.h.
 */
#include "child.h"

#include "must.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* By default ThreadSanitizer ends a forked child that starts threads, and opening a client starts
 * one. */
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

pid_t child_fork(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    must(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before the signal was asked for */
        _exit(1);
    return 0;
}

pid_t child_start(int (*body)(void *arg), void *arg)
{
    fflush(NULL);
    pid_t pid = child_fork();
    if (pid > 0)
        return pid;
    exit(body(arg));
}

int child_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        must(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

pthread_t thread_start(void *(*body)(void *arg), void *arg)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, body, arg) == 0);
    return thread;
}

void thread_wait(pthread_t thread)
{
    must(pthread_join(thread, NULL) == 0);
}
