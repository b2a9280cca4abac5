package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

// modes are the types in find's %y.
var modes = map[string]fs.FileMode{
	"f": 0, "d": fs.ModeDir, "l": fs.ModeSymlink, "p": fs.ModeNamedPipe, "s": fs.ModeSocket, "b": fs.ModeDevice, "c": fs.ModeDevice | fs.ModeCharDevice,
}

// special are the bits of find's %m beside the permissions.
var special = map[uint64]fs.FileMode{0o1000: fs.ModeSticky, 0o2000: fs.ModeSetgid, 0o4000: fs.ModeSetuid}

// xattrs are the extended attributes, of which find says nothing.
var xattrs = regexp.MustCompile(` map\[.*\]$`)

// found returns the lines that describe gives, without extended attributes, as find and sha256sum know them.
func found(t *testing.T, dir string) (lines []string) {
	out, err := exec.Command("find", dir, "-printf", `%P\0%y\0%m\0%U\0%G\0%n\0%T@\0%l\0`).Output()
	if err != nil {
		t.Skip("no GNU find, or not for all of the directory: ", err)
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	var files []string
	for e := range slices.Chunk(fields, 8) {
		if e[1] == "f" {
			files = append(files, e[0])
		}
	}
	cmd := exec.Command("xargs", "-0r", "sha256sum", "-z", "--")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(strings.Join(files, "\x00"))
	out, err = cmd.Output()
	if err != nil {
		t.Skip("no sha256sum, or not for all files: ", err)
	}
	sums := map[string]string{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		sum, name, _ := strings.Cut(line, "  ")
		sums[name] = sum
	}
	type located struct{ rel, line string }
	var all []located
	for e := range slices.Chunk(fields, 8) {
		bits, err := strconv.ParseUint(e[2], 8, 32)
		require.NoError(t, err)
		mode := modes[e[1]] | fs.FileMode(bits&0o777)
		for bit, is := range special {
			if bits&bit != 0 {
				mode |= is
			}
		}
		seconds, parts, _ := strings.Cut(e[6], ".")
		line := fmt.Sprintf("%q %v %s %s %s %s", e[0], mode, e[3], e[4], e[5], strings.TrimLeft(seconds+parts[:9], "0"))
		switch e[1] {
		case "l":
			line += fmt.Sprintf(" %q", e[7])
		case "f":
			line += " " + sums[e[0]]
		}
		all = append(all, located{e[0], line})
	}
	slices.SortFunc(all, func(a, b located) int { return fileproc.ComparePaths(a.rel, b.rel) })
	for _, l := range all {
		lines = append(lines, l.line)
	}
	return lines
}

// TestAsFindAndSha256sum: the program prints what find and sha256sum print of the same directories.
func TestAsFindAndSha256sum(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("compares with GNU find, on Linux")
	}
	program := filepath.Join(t.TempDir(), "backup")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Skipf("cannot be built here: %v: %s", err, out)
	}
	made := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(made, "a b", "empty"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(made, "a b", "f\n\"g\""), bytes.Repeat([]byte("x"), 3<<20), 0o640))
	require.NoError(t, os.Link(filepath.Join(made, "a b", "f\n\"g\""), filepath.Join(made, "a-b")))
	require.NoError(t, os.Symlink("no where", filepath.Join(made, "a b", "link")))
	require.NoError(t, os.Chmod(filepath.Join(made, "a-b"), 0o4751|fs.ModeSetuid))
	dirs := []string{made}
	if !testing.Short() {
		goroot, err := exec.Command("go", "env", "GOROOT").Output()
		require.NoError(t, err)
		dirs = append(dirs, "/etc", "/usr/share", filepath.Join(strings.TrimSpace(string(goroot)), "src"))
	}
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			want := found(t, dir)
			var failed bytes.Buffer
			cmd := exec.Command(program, dir)
			cmd.Stderr = &failed
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Empty(t, failed.String())
			got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			require.Len(t, got, len(want))
			for i := range want {
				if line := xattrs.ReplaceAllString(got[i], ""); line != want[i] {
					require.Equal(t, want[i], line)
				}
			}
			t.Logf("%d entries", len(got))
		})
	}
}
