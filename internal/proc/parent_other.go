//go:build !linux

package proc

import "syscall"

// diesWithParent does nothing where the kernel has no such service.
func diesWithParent() *syscall.SysProcAttr { return nil }
