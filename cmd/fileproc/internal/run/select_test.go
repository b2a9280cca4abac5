package run

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// selected returns the selection of these flags.
func selected(what int, args ...string) (*Selection, error) {
	s, cmd := new(Selection), &cobra.Command{Use: "x"}
	s.Flags(cmd, what)
	if err := cmd.ParseFlags(args); err != nil {
		return s, err
	}
	return s, s.Check(cmd)
}

// The bounds of --min-size, --max-size and --newer are within them, that of --older is not.
func TestBoundsOfSelect(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2020, 1, 31, 12, 0, 0, 0, time.UTC)
	for n := range 5 {
		name := filepath.Join(dir, fmt.Sprint(n))
		require.NoError(t, os.WriteFile(name, make([]byte, n), 0o666))
		require.NoError(t, os.Chtimes(name, at, at.Add(time.Duration(n-2)*time.Second)))
	}
	for _, tt := range []struct {
		flags []string
		want  []string
	}{
		{[]string{"--min-size", "2"}, []string{"2", "3", "4"}},
		{[]string{"--max-size", "2"}, []string{"0", "1", "2"}},
		{[]string{"--max-size", "0"}, []string{"0"}},
		{[]string{"--min-size", "1", "--max-size", "3"}, []string{"1", "2", "3"}},
		{[]string{"--newer", "2020-01-31T12:00:00Z"}, []string{"2", "3", "4"}},
		{[]string{"--older", "2020-01-31T12:00:00Z"}, []string{"0", "1"}},
		{[]string{"--newer", "2020-01-31T11:59:59Z", "--older", "2020-01-31T12:00:01Z"}, []string{"1", "2"}},
		{[]string{"--min-size", "0"}, []string{"0", "1", "2", "3", "4"}},
	} {
		s, err := selected(All, tt.flags...)
		require.NoError(t, err)
		s.Opts.Ordered = true
		got, err := fileproc.Process(t.Context(), dir, s.Opts, func(f *fileproc.File) (string, error) { return f.Name(), nil })
		require.NoError(t, err)
		require.Equal(t, tt.want, got, tt.flags)
	}
}

// A size is a number with or without a unit; what is negative or too large is none.
func TestSizeFlag(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "1K": 1024, "1k": 1024, "1KiB": 1024, "1kb": 1024, "0.5M": 512 << 10, "3G": 3 << 30, "2T": 2 << 40} {
		n := int64(-1)
		require.NoError(t, size(&n)(text), text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "x", "-1", "-2K", "9999999999G", "1 2", fmt.Sprint(uint64(math.MaxUint64))} {
		n := int64(0)
		require.ErrorContains(t, size(&n)(text), "want a number of bytes", text)
	}
}

// A time is a date, in the local zone unless it says another, or an age of up to 292 years.
func TestInstantFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]time.Time{
			"2026-01-31": time.Date(2026, 1, 31, 0, 0, 0, 0, time.Local), "2026-01-31 12:34:56": time.Date(2026, 1, 31, 12, 34, 56, 0, time.Local),
			"2026-01-31T12:00:00Z": time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), "2026-01-31T12:00:00+02:00": time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC),
			"0s": time.Now(), "36h": time.Now().Add(-36 * time.Hour), "7d": time.Now().Add(-7 * 24 * time.Hour), "2w": time.Now().Add(-14 * 24 * time.Hour), "0d": time.Now(),
		} {
			var got time.Time
			require.NoError(t, instant(&got)(text), text)
			require.True(t, want.Equal(got), "%s: %s", text, got)
		}
		for _, text := range []string{"", "yesterday", "-1h", "-1d", "7", "d", "20000w", "99999999999d", "2026-02-30", "1.5d"} {
			var got time.Time
			require.ErrorContains(t, instant(&got)(text), "want a date", text)
		}
	})
}

// What is hidden or ignored is left out as the subcommand, -u and the flags say, and not of what a list names unless a flag asks for it.
func TestWhatIsLeftOut(t *testing.T) {
	for _, tt := range []struct {
		what              int
		flags             []string
		hidden, gitIgnore bool // are left out
	}{
		{0, nil, true, true}, {All, nil, false, false},
		{0, []string{"-u"}, true, false}, {0, []string{"-uu"}, false, false}, {0, []string{"-uuu"}, false, false},
		{0, []string{"--hidden"}, false, true}, {0, []string{"--no-ignore"}, true, false},
		{All, []string{"--hidden=false"}, true, false}, {All, []string{"--no-ignore=false"}, false, true}, {All, []string{"-u", "--no-ignore=false"}, false, false},
		{0, []string{"--files-from", "x"}, false, false}, {0, []string{"--files-from", "x", "--hidden=false"}, true, false},
		{0, []string{"--files-from", "x", "--no-ignore=false"}, false, true}, {0, []string{"--files-from", "x", "-0"}, false, false},
	} {
		s, err := selected(tt.what, tt.flags...)
		require.NoError(t, err)
		require.True(t, s.Used)
		require.Equal(t, tt.hidden, s.Opts.SkipHidden, tt.flags)
		require.Equal(t, tt.gitIgnore, s.Opts.GitIgnore, tt.flags)
		require.Equal(t, tt.gitIgnore, slices.Equal([]string{".gitignore", ".ignore"}, s.Opts.IgnoreFiles), tt.flags)
	}
	s := new(Selection)
	require.NoError(t, s.Check(new(cobra.Command)))
	require.False(t, s.Used, "a subcommand without these flags selects nothing")
}

// The flags that are numbers have bounds, and some flags need or exclude others.
func TestWrongFlags(t *testing.T) {
	for flags, want := range map[[2]string]int{{"-j", "1"}: 1, {"-j", "65536"}: 1 << 16, {"-j", "0"}: runtime.GOMAXPROCS(0)} {
		s, err := selected(0, flags[:]...)
		require.NoError(t, err)
		require.Equal(t, want, s.Opts.Workers)
	}
	for text, want := range map[string][2]int{"1/1": {0, 1}, "1/3": {0, 3}, "3/3": {2, 3}} {
		s, err := selected(0, "--shard", text)
		require.NoError(t, err)
		require.Equal(t, want, [2]int{s.Opts.Shard, s.Opts.Shards})
	}
	for _, tt := range [][]string{
		{"--threads is", "-j", "-1"}, {"--threads is", "-j", "65537"}, {"want I/N", "--shard", "0/3"}, {"want I/N", "--shard", "4/3"}, {"want I/N", "--shard", "1"},
		{"want I/N", "--shard", "1/3x"}, {"want I/N", "--shard", "-1/3"}, {"want I/N", "--shard", "1/"}, {"--null needs", "-0"},
		{"so --sort cannot", "--sort", "--symlinks", "follow"}, {"want skip, files or follow", "--symlinks", "all"},
	} {
		_, err := selected(Sorts, tt[1:]...)
		require.ErrorContains(t, err, tt[0], tt)
	}
	_, err := selected(Sorts, "--sort", "--symlinks", "files")
	require.NoError(t, err)
}

// A pattern of the command is one of the package: without a slash it matches at every depth, and what is in dir/** is not dir itself.
func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		flags            []string
		include, exclude []string
	}{
		{[]string{"-g", "*.md"}, []string{"**/*.md"}, nil}, {[]string{"-g", "/*.md"}, []string{"*.md"}, nil}, {[]string{"-g", "docs/*.md"}, []string{"docs/*.md"}, nil},
		{[]string{"-g", "!*.md"}, nil, []string{"**/*.md"}}, {[]string{"-E", "x"}, nil, []string{"**/x"}}, {[]string{"-E", "!x"}, nil, []string{"**/!x"}},
		{[]string{"-E", "d/**"}, nil, []string{"d/**/*"}}, {[]string{"-g", "a", "-g", "!b", "-E", "c"}, []string{"**/a"}, []string{"**/b", "**/c"}}, {[]string{"-g", ""}, []string{""}, nil},
	} {
		s, err := selected(0, tt.flags...)
		require.NoError(t, err)
		require.Equal(t, tt.include, s.Opts.Include, tt.flags)
		require.Equal(t, tt.exclude, s.Opts.Exclude, tt.flags)
	}
}
