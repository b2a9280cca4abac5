//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Each call is in the table once, and strace knows each of its errors.
func TestTable(t *testing.T) {
	known := map[string]bool{"EOPNOTSUPP": true} // which is ENOTSUP too
	for e := unix.Errno(1); e < 200; e++ {
		known[unix.ErrnoName(e)] = true
	}
	seen := map[string]bool{}
	for _, target := range targets {
		require.False(t, seen[target.call], "%s is in the table twice", target.call)
		seen[target.call] = true
		all := target.errnos()
		require.NotEmpty(t, all)
		twice := map[string]bool{}
		for _, e := range all {
			require.True(t, known[e], "%s: no error %s", target.call, e)
			require.False(t, twice[e], "%s: %s comes twice", target.call, e)
			twice[e] = true
		}
	}
}

func TestBegun(t *testing.T) {
	for line, want := range map[string]string{
		"12 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\n":            "12 openat",
		"12  read(3,  <unfinished ...>\n":                       "12 read",
		"12 <... read resumed>\"x\", 9) = 1\n":                  "",
		"12 --- SIGURG {si_signo=SIGURG, si_code=SI_TKILL} ---": "",
		"12 +++ exited with 0 +++":                              "",
	} {
		m := begun.FindStringSubmatch(line)
		require.Equal(t, want != "", m != nil, line)
		if m != nil {
			require.Equal(t, want, strings.Join(m[1:], " "))
		}
	}
}

// A victim finds what is planted: a file that is not delivered, one with other bytes, and one too many.
func TestVictimFindsALoss(t *testing.T) {
	for name, spoil := range map[string]func(root string) error{
		"":        func(string) error { return nil },
		"missing": func(root string) error { return os.Remove(filepath.Join(root, "a/b/file1")) },
		"torn":    func(root string) error { return os.Truncate(filepath.Join(root, "middle"), 5) },
		"extra":   func(root string) error { return os.WriteFile(filepath.Join(root, "f/other"), nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, plant("small", root))
			require.NoError(t, spoil(root))
			for _, mode := range []string{"process", "ordered", "open"} {
				err := fail.Try(func() { runVictim(parseJob("linux "+mode+"   when="), root, filepath.Join(t.TempDir(), "cache")) })
				require.Equal(t, name != "", err != nil, "%s: %v", mode, err)
			}
		})
	}
}

// What a loss is printed with names the run.
func TestParseJob(t *testing.T) {
	for _, text := range []string{
		"linux cold openat error=EIO when=2+3", "generic again seccomp statx+newfstatat=EPERM when=", "unix walk short-counts 4 when=",
	} {
		require.Equal(t, text, parseJob(text).String())
	}
	j := parseJob("linux many seccomp openat2=EPERM when=")
	require.True(t, j.t.absorbed)
	require.Equal(t, "EPERM", j.errno())
	for _, text := range []string{"", "read", "linux process read error=EIO", "linux none read error=EIO when=1", "linux process read error=EIO 1"} {
		require.Empty(t, parseJob(text).backend, text)
	}
}

// The driver takes for a loss what a victim must not do.
func TestDriverFindsALoss(t *testing.T) {
	reads, ring := target{call: "read", paths: true}, target{call: "io_uring_enter", absorbed: true}
	process := modes[0]
	for name, tc := range map[string]struct {
		j        job
		out      string
		err      error
		injected int
		loss     bool
	}{
		"all delivered":          {job{mode: process, t: reads, fault: "error=EIO"}, "delivered=68 failed=0 leaked=0", nil, 1, false},
		"reported":               {job{mode: process, t: reads, fault: "error=EIO"}, "delivered=67 failed=1 leaked=0", nil, 1, false},
		"leaked":                 {job{mode: process, t: reads, fault: "error=EIO"}, "delivered=68 failed=0 leaked=1", nil, 1, true},
		"failed without a fault": {job{mode: process, t: reads, fault: "error=EIO"}, "delivered=67 failed=1 leaked=0", nil, 0, true},
		"failed by a delay":      {job{mode: process, t: reads, fault: "delay_exit=9"}, "delivered=67 failed=1 leaked=0", nil, 1, true},
		"not made again":         {job{mode: process, t: reads, fault: "error=EINTR"}, "delivered=67 failed=1 leaked=0", nil, 1, true},
		"not absorbed":           {job{mode: process, t: ring, fault: "error=EIO"}, "delivered=67 failed=1 leaked=0", nil, 1, true},
		"ended by the runtime":   {job{mode: process, t: ring, fault: "error=EIO"}, "fatal error: no memory", errors.New("exit status 2"), 1, false},
		"a loss, then a crash":   {job{mode: process, t: ring, fault: "error=EIO"}, "LOSS: a\nfatal error: x", errors.New("exit status 2"), 1, true},
		"a crash":                {job{mode: process, t: reads, fault: "error=EIO"}, "panic: x", errors.New("exit status 2"), 1, true},
		"no counts":              {job{mode: process, t: reads, fault: "error=EIO"}, "", nil, 1, true},
		"hangs":                  {job{mode: process, t: reads, fault: "error=EIO"}, "delivered=68 failed=0 leaked=0", errHangs, 1, true},
	} {
		d := &driver{flags: trial.NewFlags("faults")}
		d.judge(tc.j, tc.out, tc.err, tc.injected)
		require.Equal(t, tc.loss, d.losses.Load() == 1, name)
	}
}
