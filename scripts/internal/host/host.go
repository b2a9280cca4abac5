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
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	parts := []string{runtime.Version(), strings.TrimSpace(runtime.GOOS + " " + string(kernel)), field("cpuinfo", "model name"), runtime.GOARCH,
		fmt.Sprint(runtime.NumCPU(), " cores"), FileSystem(dir)}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
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
	text, _ := exec.Command("df", "--output=fstype", "--", dir).Output()
	_, name, _ := strings.Cut(strings.TrimSpace(string(text)), "\n") // the first line is a head
	return name
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
