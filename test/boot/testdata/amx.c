/*
 * A ptrace(2) like that of a machine whose processor has AMX: its extended register
 * set has 11,008 bytes, and PTRACE_SETREGSET takes no fewer. What the processor does
 * not have reads as zeros.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { AMX_SIZE = 11008 };

static long (*next_ptrace)(int request, pid_t pid, void *addr, void *data);

__attribute__((constructor)) static void start(void)
{
	next_ptrace = (long (*)(int, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
}

static long get(pid_t pid, void *type, struct iovec *asked)
{
	static unsigned char set[AMX_SIZE];
	struct iovec own = {set, sizeof set};
	long result = next_ptrace(PTRACE_GETREGSET, pid, type, &own);
	memset(set + own.iov_len, 0, sizeof set - own.iov_len);
	if (asked->iov_len > sizeof set)
		asked->iov_len = sizeof set;
	memcpy(asked->iov_base, set, asked->iov_len);
	return result;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);
	if ((uintptr_t)addr == NT_X86_XSTATE && request == PTRACE_GETREGSET)
		return get(pid, addr, data);
	if ((uintptr_t)addr == NT_X86_XSTATE && request == PTRACE_SETREGSET && ((struct iovec *)data)->iov_len < AMX_SIZE) {
		errno = EFAULT;
		return -1;
	}
	return next_ptrace(request, pid, addr, data);
}
