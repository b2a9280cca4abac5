package main

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fileproc/fileproc"
)

// A selection is the flags that say which files are processed. They become fileproc.Options here and nowhere else.
type selection struct {
	opts fileproc.Options // what flags set directly
	used bool             // the subcommand selects files

	unrestricted     int
	ignores          bool     // ignore files are read
	ignoreFiles      []string // that are named besides
	shard            string
	minSize, maxSize int64     // maxSize is -1 if there is no limit
	newer, older     time.Time // zero if there is none
	symlinks         string
	sort             bool
}

// A scope is what a subcommand leaves out when no flag says otherwise.
type scope int

const (
	scopeSearch scope = iota // as rg and fd: hidden files, and what ignore files name
	scopeAll                 // nothing, as sha256sum and du
)

// These flags have no variables, since their defaults depend on the subcommand.
const (
	hiddenFlag   = "hidden"
	noIgnoreFlag = "no-ignore"
)

// mostThreads is what fileproc.Options.Workers can be.
const mostThreads = 1 << 16

// flags adds the flags to cmd, which reads files or only lists them.
func (s *selection) flags(cmd *cobra.Command, def scope, reads bool) {
	f := cmd.Flags()
	s.maxSize = -1
	if f.Lookup("max-depth") == nil { // du has its own
		f.IntVarP(&s.opts.MaxDepth, "max-depth", "d", 0, "go down `N` levels; 1 is the directory's own files (default no limit)")
	}
	f.StringSliceVar(&s.opts.Suffixes, "suffix", nil, "only files whose name ends with one of `SUFFIXES`, e.g. .go,.md")
	f.StringArrayVarP(&s.opts.Include, "include", "g", nil,
		"only files whose path fits `PATTERN`: '*.md' at every depth, '/*.md' or 'docs/**/*.md' from the top; '!*.md' is -E '*.md'; may be repeated")
	f.StringArrayVarP(&s.opts.Exclude, "exclude", "E", nil, "not the files and directories whose path fits `PATTERN`; may be repeated")
	f.Bool(noIgnoreFlag, def == scopeAll, "do not read .gitignore, .ignore, .git/info/exclude and git's global file")
	f.StringArrayVar(&s.ignoreFiles, "ignore-file", nil,
		"read `FILE`, with patterns as .gitignore has them: a name is looked for in every directory, a path is one file")
	f.Bool(hiddenFlag, def == scopeAll, "also files and directories whose name begins with a dot")
	f.CountVarP(&s.unrestricted, "unrestricted", "u", "-u is --no-ignore, -uu is --hidden too")
	f.BoolVar(&s.opts.OneFilesystem, "one-file-system", false, "do not go into other file systems")
	f.StringVar(&s.symlinks, "symlinks", "skip", "symbolic links: skip, files (read those that lead to a file), or follow (to directories too)")
	cmd.RegisterFlagCompletionFunc("symlinks", cobra.FixedCompletions(
		slices.Sorted(maps.Keys(symlinks)), cobra.ShellCompDirectiveNoFileComp))
	f.BoolVar(&s.opts.SymlinksOutside, "symlinks-outside", false, "with --symlinks: links that lead out of the directory too")
	if reads {
		f.BoolVar(&s.opts.SkipBinary, "skip-binary", false, "skip files with a NUL byte in their first 8 KiB")
	}
	f.Func("min-size", "only files of `SIZE` bytes and more; with K, M, G or T times 1024, its square, …", s.size(&s.minSize))
	f.Func("max-size", "only files of `SIZE` bytes and less", s.size(&s.maxSize))
	f.Func("newer", "only files changed since `TIME`: 2026-01-31, 2026-01-31T12:00:00Z, or an age: 36h, 7d, 2w", s.instant(&s.newer))
	f.Func("older", "only files not changed since `TIME`", s.instant(&s.older))
	f.StringVar(&s.shard, "shard", "", "only the files of part `I/N`, e.g. 1/8: a job divided among machines")
	f.IntVarP(&s.opts.Workers, "threads", "j", 0, "`N` goroutines (default the number of processors)")
	f.BoolVar(&s.opts.DisableURing, "no-uring", false, "do not use io_uring (Linux)")
}

var symlinks = map[string]fileproc.Symlinks{
	"skip": fileproc.SymlinksSkip, "files": fileproc.SymlinksFiles, "follow": fileproc.SymlinksFollow,
}

// sortFlag adds the flag for subcommands that print files as they come.
func (s *selection) sortFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.sort, "sort", false, "in the order of the paths, name by name (default as they are finished)")
}

// check completes the options, and says what is wrong with the flags of cmd.
func (s *selection) check(cmd *cobra.Command) error {
	if cmd.Flags().Lookup(hiddenFlag) == nil {
		return nil // cmd selects no files
	}
	s.used = true
	hidden, _ := cmd.Flags().GetBool(hiddenFlag) // no error: flags has added them
	noIgnore, _ := cmd.Flags().GetBool(noIgnoreFlag)
	s.ignores = !noIgnore && s.unrestricted == 0
	switch n := s.opts.Workers; {
	case n == 0:
		s.opts.Workers = runtime.GOMAXPROCS(0)
	case n < 0 || n > mostThreads: // before tables of that length are made
		return fmt.Errorf("--threads is %d: want 1 to %d, or 0 for the number of processors", n, mostThreads)
	}
	s.opts.SkipHidden = !hidden && s.unrestricted < 2
	var ok bool
	if s.opts.Symlinks, ok = symlinks[s.symlinks]; !ok {
		return fmt.Errorf("--symlinks is %q: want skip, files or follow", s.symlinks)
	}
	if s.sort && s.symlinks == "follow" {
		return errors.New("--symlinks follow visits linked directories last, so that --sort cannot be used with it")
	}
	s.patterns()
	if s.shard != "" {
		var i, n int
		if _, err := fmt.Sscanf(s.shard+"\n", "%d/%d\n", &i, &n); err != nil || i < 1 || i > n {
			return fmt.Errorf("--shard is %q: want I/N with 1 ≤ I ≤ N", s.shard)
		}
		s.opts.Shard, s.opts.Shards = i-1, n
	}
	return nil
}

// anywhere is what a pattern begins with that fits at every depth.
const anywhere = "**/"

// patterns puts -g and -E, which are rg's and fd's, in the words of fileproc.Options: what has no slash fits at every
// depth, one at the beginning is the directory, and ! excludes.
func (s *selection) patterns() {
	s.opts.Include = slices.DeleteFunc(s.opts.Include, func(p string) bool {
		excluded, ok := strings.CutPrefix(p, "!")
		if ok {
			s.opts.Exclude = append(s.opts.Exclude, excluded)
		}
		return ok
	})
	for _, patterns := range [][]string{s.opts.Include, s.opts.Exclude} {
		for i, p := range patterns {
			if strings.Contains(p, "/") {
				patterns[i] = strings.TrimPrefix(p, "/")
			} else if p != "" {
				patterns[i] = anywhere + p
			}
		}
	}
}

// within returns the options for a run over dir, with which it reports failures and progress. Those of a subcommand may
// differ from the selection's. done adds the run to the totals.
func (a *app) within(dir string, opts fileproc.Options) (_ fileproc.Options, done func()) {
	opts.IgnoreFiles = nil
	if a.sel.ignores {
		var err error
		if opts.IgnoreFiles, err = fileproc.GitIgnoreFiles(dir, ".ignore"); err != nil {
			a.fail(err)
		}
	}
	opts.IgnoreFiles = append(opts.IgnoreFiles, a.sel.ignoreFiles...)
	opts.OnProgress = a.bar.onProgress()
	opts.OnError = func(err error) error {
		if a.ctx.Err() == nil {
			a.fail(err)
		}
		return nil
	}
	opts.Report = new(fileproc.Report)
	return opts, func() {
		r, t := opts.Report, &a.totals
		t.Directories += r.Directories
		t.Found += r.Found
		t.Processed += r.Processed
		t.Failed += r.Failed
		t.Abandoned += r.Abandoned
		t.Bytes += r.Bytes
		t.URing += r.URing
		if t.Skipped == nil {
			t.Skipped = map[fileproc.SkipReason]int64{}
		}
		for why, n := range r.Skipped {
			t.Skipped[why] += n
		}
	}
}

// selects judges by metadata. Where there is none, reading the file tells why.
func (s *selection) selects(f *fileproc.File) bool {
	st, err := f.Stat()
	if err != nil {
		return true
	}
	return st.Size >= s.minSize && (s.maxSize < 0 || st.Size <= s.maxSize) &&
		!st.ModTime.Before(s.newer) && (s.older.IsZero() || st.ModTime.Before(s.older))
}

// size returns the function of a flag that is a number of bytes.
func (s *selection) size(n *int64) func(string) error {
	return func(v string) error {
		s.opts.Select = s.selects
		digits := strings.TrimRight(strings.ToUpper(v), "IB")
		shift := 0
		if digits != "" {
			if i := strings.IndexByte("KMGT", digits[len(digits)-1]); i >= 0 {
				shift = 10 * (i + 1)
				digits = digits[:len(digits)-1]
			}
		}
		k, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || k < 0 || k<<shift>>shift != k {
			return errors.New("want a number of bytes, or one with K, M, G or T behind it")
		}
		*n = k << shift
		return nil
	}
}

// instant returns the function of a flag that is a point in time.
func (s *selection) instant(t *time.Time) func(string) error {
	return func(v string) (err error) {
		s.opts.Select = s.selects
		for _, layout := range []string{time.DateOnly, time.DateTime, time.RFC3339} {
			if *t, err = time.ParseInLocation(layout, v, time.Local); err == nil {
				return nil
			}
		}
		age, err := time.ParseDuration(v)
		for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
			if n, found := strings.CutSuffix(v, suffix); found {
				var k int64
				k, err = strconv.ParseInt(n, 10, 64)
				if age = time.Duration(k) * unit; age/unit != time.Duration(k) {
					age = -1 // it has overflowed
				}
			}
		}
		if err != nil || age < 0 {
			return errors.New("want a date, a date and time, or an age such as 36h, 7d or 2w, of up to 292 years")
		}
		*t = time.Now().Add(-age)
		return nil
	}
}
