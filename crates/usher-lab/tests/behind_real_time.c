/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU 1 has run batch work and idles when real-time work begins there, for two seconds; then urgent work wakes beside what keeps CPU 0
 * busy, and is worth more than batch. Runs in a guest with two CPUs, as root. Says for how many nanoseconds the urgent task waited for
 * a CPU, all times together.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static void stay(int first, int last)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (; first <= last; first++)
		CPU_SET(first, &set);
	must(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static void become(int policy, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	must(sched_setscheduler(0, policy, &param), "sched_setscheduler");
}

static void compute_ms(double ms)
{
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begun.tv_sec) * 1e3 + (now.tv_nsec - begun.tv_nsec) / 1e6 < ms);
}

static pid_t child(int cpu)
{
	pid_t pid = fork();

	must(pid, "fork");
	if (!pid)
		stay(cpu, cpu);
	return pid;
}

static void wake(int times)
{
	while (times--)
		usleep(20000);
}

static unsigned long long waited_ns(void)
{
	unsigned long long ran_ns, waited_ns;
	FILE *file = fopen("/proc/self/schedstat", "r");

	if (!file || fscanf(file, "%llu %llu", &ran_ns, &waited_ns) != 2)
		must(-1, "/proc/self/schedstat");
	fclose(file);
	return waited_ns;
}

int main(void)
{
	int go[2];
	char byte = 0;
	pid_t batch, normal, real_time;
	unsigned long long before;

	stay(0, 0);
	must(pipe(go), "pipe");
	real_time = child(1);
	if (!real_time) {
		become(SCHED_FIFO, 10);
		must(read(go[0], &byte, 1), "read");
		compute_ms(2000);
		return 0;
	}
	normal = child(0);
	if (!normal)
		for (;; usleep(20))
			compute_ms(1.5);
	batch = child(1);
	if (!batch) {
		become(SCHED_BATCH, 0);
		for (;;)
			;
	}
	must(setpriority(PRIO_PROCESS, 0, -15), "setpriority");
	wake(10);
	kill(batch, SIGKILL);
	must(waitpid(batch, NULL, 0), "waitpid");
	must(write(go[1], &byte, 1), "write");
	usleep(50000);
	stay(0, 1);
	before = waited_ns();
	wake(50);
	printf("%llu\n", waited_ns() - before);
	kill(normal, SIGKILL);
	kill(real_time, SIGKILL);
	return 0;
}
