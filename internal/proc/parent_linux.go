package proc

import "syscall"

// diesWithParent lets the kernel end the process if the test binary dies without its
// cleanups, as it does at go test's -timeout.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
