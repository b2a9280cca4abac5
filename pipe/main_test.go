package pipe_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/pipe"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary a batch program.
const asProgram = "PIPE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	pipe.Main(fileproc.Options{Suffixes: []string{".txt"}}, func(f *fileproc.File) (int, error) {
		if string(f.Data()) == "panic" {
			panic("no more")
		}
		return length(f)
	})
}

// program runs a batch program.
func program(t *testing.T, in string, args ...string) (stdout, stderr string, status int) {
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("js and wasip1 cannot start processes, and the program is one")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	require.True(t, err == nil || errors.As(err, &exit), err)
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestProgram(t *testing.T) {
	dir := makeTree(t, map[string]string{"d/a.txt": "four", "bad.txt": "bad", "no.md": "", "worse/panic.txt": "panic"})
	require.NoError(t, os.Rename(filepath.Join(dir, "worse"), filepath.Join(dir, "..", "worse")))

	out, errs, status := program(t, "", "-list", dir)
	require.ElementsMatch(t, []string{`"bad.txt"`, `"d/a.txt"`}, strings.Fields(out))
	require.Zero(t, status, errs)

	out, errs, status = program(t, out, dir)
	require.ElementsMatch(t, []string{`{"path":"bad.txt","error":"process: it is bad"}`, `{"path":"d/a.txt","result":4}`}, strings.Split(strings.TrimSpace(out), "\n"))
	require.Zero(t, status)
	require.Empty(t, errs)

	out, _, status = program(t, "", "-0", "-list", dir)
	require.ElementsMatch(t, []string{"bad.txt", "d/a.txt", ""}, strings.Split(out, "\x00"))
	require.Zero(t, status)

	out, _, status = program(t, "d/a.txt\x00\"quoted\"\n.txt\x00", "-0", dir)
	require.Len(t, parse(t, []byte(out)), 2)
	require.Len(t, parse(t, []byte(out))["\"quoted\"\n.txt"], 1)
	require.Zero(t, status)

	worse := filepath.Join(dir, "..", "worse")
	_, errs, status = program(t, "panic.txt\n", worse)
	require.Equal(t, 1, status)
	require.Contains(t, errs, filepath.Join(worse, "panic.txt")+": ")
	require.Contains(t, errs, "panic in a callback: no more")

	_, errs, status = program(t, "", filepath.Join(dir, "not"))
	require.Equal(t, 1, status)
	require.Contains(t, errs, "not")

	_, errs, status = program(t, "")
	require.Equal(t, 2, status)
	require.Contains(t, errs, "usage: ")
}

// TestProgramWithBrokenOutput does not exit with status 0.
func TestProgramWithBrokenOutput(t *testing.T) {
	dir := makeTree(t, map[string]string{"a.txt": "four"})
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("js and wasip1 cannot start processes, and the program is one")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, in := range []string{"a.txt\n", ""} {
		for _, args := range [][]string{{dir}, {"-list", dir}} {
			cmd := exec.Command(self, args...)
			cmd.Env = append(os.Environ(), asProgram+"=1")
			cmd.Stdin = strings.NewReader(in)
			read, write, err := os.Pipe()
			require.NoError(t, err)
			cmd.Stdout = write
			require.NoError(t, read.Close())
			err = cmd.Run()
			require.NoError(t, write.Close())
			if in == "" && len(args) == 1 {
				require.NoError(t, err) // it writes nothing
			} else {
				require.Error(t, err)
			}
		}
	}
}
