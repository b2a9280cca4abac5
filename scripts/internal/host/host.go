// Package host describes the machine of a measurement, without names of hosts and users, and empties its caches.
package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// Machine returns one line that describes the machine and the file system of dir.
func Machine(dir string) string {
	parts := []string{runtime.Version(), strings.TrimSpace(runtime.GOOS + " " + Kernel()), field("cpuinfo", "model name"), runtime.GOARCH,
		fmt.Sprint(runtime.NumCPU(), " cores"), FileSystem(dir)}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// Kernel returns the release of the kernel, if /proc says it.
func Kernel() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(release))
}

// field returns what a file in /proc says behind a key and a colon, or "" if it does not.
func field(file, key string) string {
	text, _ := os.ReadFile("/proc/" + file)
	for line := range strings.Lines(string(text)) {
		if before, after, _ := strings.Cut(line, ":"); strings.TrimSpace(before) == key {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

// FileSystem returns the type of the file system that contains dir, if df says it.
func FileSystem(dir string) string {
	text, err := exec.Command("df", "--output=fstype", "--", dir).Output()
	lines := strings.Fields(string(text))
	if err != nil || len(lines) < 2 {
		return ""
	}
	return lines[1]
}

// DropCaches empties the page, dentry and inode caches. It needs root.
func DropCaches() error {
	err := exec.Command("sync").Run() // dirty pages cannot be dropped
	if err = errors.Join(err, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200)); err != nil {
		return fmt.Errorf("dropping the caches: %w", err)
	}
	return nil
}

// MemoryMiB returns a value of /proc/self/status, such as VmSize (address space) or VmHWM (peak of resident memory).
func MemoryMiB(key string) (size float64) {
	fmt.Sscan(field("self/status", key), &size) // and a unit, kB
	return size / 1024
}
