/*
 * usage: setregs FILE...
 * Gives a child the extended registers (NT_X86_XSTATE) in each FILE, one after the
 * other, and writes to standard output what the child has then.
 */
#include <elf.h>
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char registers[1 << 20];
static volatile long word = -2; /* what ptrace(2) returns for an error is -1 */

static void set_from(const char *path, pid_t child)
{
	FILE *file = fopen(path, "r");
	if (!file)
		err(2, "%s", path);
	struct iovec part = {registers, fread(registers, 1, sizeof registers, file)};
	fclose(file);
	if (ptrace(PTRACE_SETREGSET, child, (void *)NT_X86_XSTATE, &part) < 0)
		err(1, "PTRACE_SETREGSET of %zu bytes", part.iov_len);
}

int main(int argc, char **argv)
{
	pid_t child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			err(2, "PTRACE_TRACEME");
		raise(SIGSTOP);
		_exit(0);
	}
	if (child < 0 || waitpid(child, NULL, 0) < 0)
		err(2, "child");
	errno = 0;
	if (ptrace(PTRACE_PEEKDATA, child, (void *)&word, NULL) != word || errno != 0)
		errx(2, "PTRACE_PEEKDATA does not return the word");
	for (int i = 1; i < argc; i++)
		set_from(argv[i], child);
	struct iovec all = {registers, sizeof registers};
	if (ptrace(PTRACE_GETREGSET, child, (void *)NT_X86_XSTATE, &all) < 0)
		err(2, "PTRACE_GETREGSET");
	fwrite(registers, 1, all.iov_len, stdout);
	kill(child, SIGKILL);
	return 0;
}
