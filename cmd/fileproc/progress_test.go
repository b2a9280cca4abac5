//go:build darwin || linux || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

// onTerminal runs cmd on a terminal, which takes the place of each standard stream that is nil, and returns the bytes that
// arrive there.
func onTerminal(t *testing.T, cmd *exec.Cmd, columns uint16, env ...string) string {
	t.Helper()
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "NO_COLOR="), env...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	require.NoError(t, err)
	defer terminal.Close()
	got, err := io.ReadAll(terminal)
	if !errors.Is(err, syscall.EIO) { // Linux's error when all programs have closed the terminal
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Wait())
	return string(got)
}

const erase = "\x1b[2K\r"

// progressOf separates the lines of progress from the rest of the screen. It requires that each line of progress fits the
// columns, and is erased before other text.
func progressOf(t *testing.T, screen string, columns int) (progress []string, rest string) {
	t.Helper()
	shown := false
	for screen != "" {
		if after, ok := strings.CutPrefix(screen, erase); ok {
			require.True(t, shown, "nothing to erase before %q", after)
			screen, shown = after, false
			continue
		}
		if after, ok := strings.CutPrefix(screen, "\r"); ok {
			var line string
			line, screen, ok = strings.Cut(after, "\x1b[0K")
			require.True(t, ok, after)
			require.Less(t, len([]rune(line)), columns, line)
			require.NotContains(t, line, "\n")
			progress, shown = append(progress, line), true
			continue
		}
		require.False(t, shown, "progress is not erased before %q", screen)
		line, after, _ := strings.Cut(screen, "\n")
		rest, screen = rest+line+"\n", after
	}
	require.False(t, shown, "progress is left at the end")
	return progress, rest
}

func twoFiles(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x\n"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("x\n"), 0o666))
	return dir
}

func TestProgressOnATerminal(t *testing.T) {
	const found = "x\r\n" // a terminal adds the carriage return
	for _, tc := range []struct {
		name    string
		columns int
		env     []string
		shows   string
	}{
		{"usual", 80, nil, "⠋ 2 files, "},
		{"without colours", 80, []string{"NO_COLOR=1"}, "⠋ 2 files, "},
		{"of unknown width", 0, nil, "⠋ 2 files, "},
		{"narrow", 10, nil, "⠋ 2 files"},
		{"too narrow", 3, nil, ""},
		{"dumb", 80, []string{"TERM=dumb"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := commandAs(t, "fileproc-begun", "grep", "-IN", "--color=never", "x", twoFiles(t))
			columns := tc.columns
			if columns == 0 {
				columns = 80
			}
			progress, rest := progressOf(t, onTerminal(t, cmd, uint16(tc.columns), tc.env...), columns)
			require.Equal(t, found+found, rest)
			if tc.shows == "" {
				require.Empty(t, progress)
				return
			}
			require.NotEmpty(t, progress)
			// The last spinner and the rate depend on the time.
			last := progress[len(progress)-1]
			_, text, _ := strings.Cut(tc.shows, " ")
			_, got, _ := strings.Cut(last, " ")
			require.True(t, strings.HasPrefix(got, text), "%q", last)
		})
	}
}

// A signal leaves no progress on the terminal, also while a read blocks.
func TestASignalErasesProgress(t *testing.T) {
	stdin, feed, err := os.Pipe()
	require.NoError(t, err)
	defer feed.Close()
	cmd := commandAs(t, "fileproc-begun", "grep", "x", "-")
	terminal, tty, err := pty.Open()
	require.NoError(t, err)
	defer terminal.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, tty, tty
	cmd.Env = append(os.Environ(), "TERM=xterm")
	require.NoError(t, cmd.Start())
	stdin.Close()
	tty.Close()
	_, err = feed.Write(make([]byte, 1<<20)) // more than a pipe holds: the command has begun to read
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	screen, _ := io.ReadAll(terminal)
	requireEndedBy(t, syscall.SIGTERM, cmd.Wait())
	progress, rest := progressOf(t, string(screen), 80)
	require.NotEmpty(t, progress)
	require.Empty(t, rest)
}

// Colours are for a terminal that can show them, unless a flag or the environment says otherwise.
func TestColors(t *testing.T) {
	dir := twoFiles(t)
	for _, tc := range []struct {
		env, flag string
		colors    bool
	}{
		{"NO_COLOR=", "--color=auto", true}, {"NO_COLOR=1", "--color=auto", false}, {"TERM=dumb", "--color=auto", false},
		{"NO_COLOR=", "--color=never", false}, {"NO_COLOR=1", "--color=always", true},
	} {
		path, number, match, off := "", "", "", ""
		if tc.colors {
			path, number, match, off = "\x1b[35m", "\x1b[32m", "\x1b[31;1m", "\x1b[0m"
		}
		line := "\r\n" + number + "1" + off + ":" + match + "x" + off + "\r\n"
		want := path + filepath.Join(dir, "a") + off + line + "\r\n" + path + filepath.Join(dir, "b") + off + line
		screen := onTerminal(t, commandAs(t, "fileproc-quick", "grep", "--sort", tc.flag, "x", dir), 80, tc.env)
		require.Equal(t, want, screen, "%+v", tc)
	}
	screen := onTerminal(t, commandAs(t, "fileproc-quick", "grep", "-N", "--no-heading", "--sort", "x", dir), 80, "NO_COLOR=1")
	require.Equal(t, filepath.Join(dir, "a")+":x\r\n"+filepath.Join(dir, "b")+":x\r\n", screen)
}

// A run that ends before output.ProgressDelay shows no progress.
func TestNoProgressOfQuickWork(t *testing.T) {
	cmd := commandAs(t, "fileproc-quick", "ls", twoFiles(t))
	progress, rest := progressOf(t, onTerminal(t, cmd, 80), 80)
	require.Empty(t, progress)
	require.Equal(t, 2, strings.Count(rest, "\n"))
}

// Progress counts the bytes of large files, those in a list while they are read.
func TestProgressCountsWhatIsRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 3<<20), 0o666))
	sums, err := command(t, "hash", filepath.Join(dir, "large")).Output()
	require.NoError(t, err)
	list := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(list, sums, 0o666))
	for _, args := range [][]string{{"hash", "--sort"}, {"hash", dir}, {"hash", filepath.Join(dir, "large")}, {"hash", "--check", list}} {
		cmd := commandAs(t, "fileproc-begun", args...)
		cmd.Dir = dir
		progress, _ := progressOf(t, onTerminal(t, cmd, 80), 80)
		require.NotEmpty(t, progress, args)
		require.Regexp(t, `^. 1 files, \d+ files/s, 3\.[03]M bytes$`, progress[len(progress)-1], args)
		if args[1] == "--check" {
			require.Equal(t, "⠋ 0 files, 0 files/s, 32K bytes", progress[0])
		}
	}
}

// If standard output is a file, the file has all of the output and the terminal shows progress alone.
func TestProgressBesideAFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	cmd := commandAs(t, "fileproc-begun", "grep", "x", twoFiles(t))
	cmd.Stdout = file
	progress, rest := progressOf(t, onTerminal(t, cmd, 80), 80)
	require.NotEmpty(t, progress)
	require.Empty(t, rest)
	out, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(out, []byte("x\n")))
	require.NotContains(t, string(out), "\x1b")
}

// The reader of a pipe may be a pager on the same terminal, so no progress is shown.
func TestNoProgressBesideAPipe(t *testing.T) {
	var out bytes.Buffer
	cmd := commandAs(t, "fileproc-begun", "grep", "x", twoFiles(t))
	cmd.Stdout = &out
	require.Empty(t, onTerminal(t, cmd, 80))
	require.Equal(t, 2, strings.Count(out.String(), "x\n"))
	require.NotContains(t, out.String(), "\x1b")
}

// A name cannot do anything to the terminal that it is printed on: nor escape sequences, nor new lines, nor the controls that
// reverse a text. Where standard output is no terminal, names are printed as they are.
func TestNamesOnATerminal(t *testing.T) {
	names := []string{"\x1b[2J", "\x1b]0;title\x07", "a\nfileproc: fake", "\u202egnp.exe", "\xff\x9b31m", "\u009b31m", "\r\x08", "tab\t"}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "\x1b[31mdir"), 0o777))
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x\n"), 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "\x1b[31mdir", name), []byte("x\n"), 0o666))
	}
	missing := filepath.Join(dir, "\x1b[31mmissing\nfake")
	var sums bytes.Buffer
	hash := command(t, "hash", dir)
	hash.Stdout = &sums
	require.NoError(t, hash.Run())
	list := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(list, sums.Bytes(), 0o666))
	for _, args := range [][]string{
		{"ls", dir}, {"ls", "-l", dir}, {"grep", "x", dir}, {"grep", "--no-heading", "x", dir}, {"grep", "-c", "x", dir},
		{"grep", "-l", "x", dir}, {"hash", dir}, {"hash", "--check", list}, {"du", dir}, {"du", "-h", dir}, {"stats", dir},
		{"ls", missing, dir}, {"hash", missing, dir}, {"frontmatter", "--fields", "a", dir, missing},
	} {
		cmd := command(t, args...)
		cmd.Env = append(os.Environ(), "TERM=dumb") // without colours and progress
		terminal, err := pty.Start(cmd)
		require.NoError(t, err)
		screen, _ := io.ReadAll(terminal)
		terminal.Close()
		_ = cmd.Wait() // some fail
		require.NotEmpty(t, screen, "%q", args)
		for line := range strings.Lines(string(screen)) {
			line = strings.TrimSuffix(strings.TrimRight(line, "\n"), "\r")
			line = strings.ReplaceAll(line, "\t", " ") // du has one between the columns
			require.Equal(t, line, output.Printable(line), "%q", args)
			require.False(t, strings.HasPrefix(line, "fake"), "%q", args)
		}
	}
	cmd := command(t, "ls", dir)
	out, err := cmd.Output()
	require.NoError(t, err)
	for _, name := range names {
		require.Contains(t, string(out), name)
	}
	require.Contains(t, onTerminal(t, commandAs(t, "fileproc-quick", "ls", "-0", dir), 80), "/\x1b[2J", "with -0, names are for programs")
	require.Contains(t, onTerminal(t, commandAs(t, "fileproc-quick", "grep", "-lZ", "x", dir), 80), "/\x1b[2J")
}

func TestGrepPrintsTheHeadingsThatRgPrints(t *testing.T) {
	rg := tool(t, "rg")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"text": "hello\nhello\n", "nul": "hello\x00\nhello\n", "other": "x\n"} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
	}
	for _, args := range []string{"-q", "-c", "-l", "--files-without-match", "-n", "-0", "-o", "-C1", "--no-heading"} {
		args := []string{args, "--color=never", "--sort=path", "hello", "nul", "other", "text"}
		want := onTerminal(t, exec.Command(rg, append(args, "--no-config")...), 80)
		got := onTerminal(t, command(t, append([]string{"grep", "--sort"}, slices.Delete(args, 2, 3)...)...), 80)
		require.Equal(t, want, got, "%q", args)
	}
}
