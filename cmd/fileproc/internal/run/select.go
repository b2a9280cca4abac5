package run

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/gitignore"
	"github.com/fileproc/fileproc/internal/plumbing"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Selection holds the flags that select files. Only this file turns them into fileproc.Options.
type Selection struct {
	Opts             fileproc.Options // what the flags and the subcommand say; a run over a directory adds its own
	Used             bool             // the subcommand selects files
	Cache            string           // the file of --cache
	List             string           // the file of --files-from
	Null             bool             // -0: names in List end with NUL bytes
	sorts, changed   bool             // the subcommand has --sort; --changed is set
	unrestricted     int
	minSize, maxSize int64     // maxSize is -1 if there is no limit
	newer, older     time.Time // zero if there is no limit
	shard, symlinks  string
	ignoreFiles      []string
	ignore           []*gitignore.List // of ignoreFiles
	written          [][2]string       // patterns in the library's messages, and as they were written
}

// These flags have no variables, because their defaults depend on the subcommand.
const hiddenFlag, noIgnoreFlag = "hidden", "no-ignore"

// What a subcommand does, as a set for Flags.
const (
	All   = 1 << iota // it processes all files, as sha256sum and du do; else only those neither hidden nor ignored, as rg and fd do
	Reads             // it reads files, rather than only listing them
	Sorts             // it prints each file when it is finished, so it has --sort
	Keeps             // its results depend on the content of each file alone, so it has --cache
)

// Flags adds the flags that select files to cmd, and says which of cmd's flags cannot be used together.
func (s *Selection) Flags(cmd *cobra.Command, what int, exclusive ...string) {
	f := cmd.Flags()
	s.maxSize = -1
	f.StringVar(&s.List, "files-from", "",
		"process the files whose paths `FILE` lists, one a line, in place of directories; - is standard input; a path that ends with a slash stands for all files below it")
	f.BoolVarP(&s.Null, "null", "0", false, "paths in --files-from, and those that ls prints, end with a NUL byte instead of a newline")
	if f.Lookup("max-depth") == nil { // du has its own
		f.IntVarP(&s.Opts.MaxDepth, "max-depth", "d", 0, "descend at most `N` levels; 1 is the directory's own files (default no limit)")
	}
	f.StringSliceVar(&s.Opts.Suffixes, "suffix", nil, "only files whose name ends with one of `SUFFIXES`, e.g. .go,.md")
	f.StringArrayVarP(&s.Opts.Include, "include", "g", nil,
		"only files whose path matches `PATTERN`: '*.md' at every depth, '/*.md' or 'docs/**/*.md' from the top; '!*.md' is -E '*.md'; may be repeated")
	f.StringArrayVarP(&s.Opts.Exclude, "exclude", "E", nil, "skip files and directories whose path matches `PATTERN`; may be repeated")
	f.Bool(noIgnoreFlag, what&All != 0, "do not read .gitignore, .ignore, .git/info/exclude and git's global file")
	f.BoolVar(&s.Opts.GitTracked, "tracked", false, "only files that git tracks, hidden or not, whatever ignore files say")
	f.BoolVar(&s.changed, "changed", false, "only files that differ from git's index, and files that git neither tracks nor ignores; for one directory")
	f.StringArrayVar(&s.ignoreFiles, "ignore-file", nil,
		"also read `FILE`, in the syntax of .gitignore, for paths relative to the working directory; a name without a slash is also read in every directory that has it")
	f.Bool(hiddenFlag, what&All != 0, "include files and directories whose name begins with a dot")
	f.CountVarP(&s.unrestricted, "unrestricted", "u", "-u is --no-ignore, -uu is --no-ignore --hidden")
	f.BoolVar(&s.Opts.OneFilesystem, "one-file-system", false, "do not enter directories on other file systems")
	Choice(cmd, f, &s.symlinks, "symlinks", "", "skip", symlinks,
		"`MODE` of symbolic links: skip, files (read the files they lead to), or follow (enter directories too)")
	f.BoolVar(&s.Opts.SymlinksOutside, "symlinks-outside", false, "with --symlinks: include links that lead out of the directory")
	if what&Reads != 0 {
		f.BoolVar(&s.Opts.SkipBinary, "skip-binary", false, "skip files with a NUL byte in their first 8 KiB")
		f.BoolVar(&s.Opts.Download, "download", false, "also read files whose content is in a cloud, which fetches it (Windows)")
	}
	f.Func("min-size", "only files of at least `SIZE` bytes; K, M, G and T stand for powers of 1024", size(&s.minSize))
	f.Func("max-size", "only files of at most `SIZE` bytes", size(&s.maxSize))
	f.Func("newer", "only files modified since `TIME`: 2026-01-31, 2026-01-31T12:00:00Z, or an age: 36h, 7d, 2w", instant(&s.newer))
	f.Func("older", "only files not modified since `TIME`", instant(&s.older))
	f.StringVar(&s.shard, "shard", "", "only the files of shard `I/N`, e.g. 1/8, to divide a job among machines")
	f.IntVarP(&s.Opts.Workers, "threads", "j", 0, "use `N` worker goroutines (default the number of processors)")
	f.BoolVar(&s.Opts.DisableURing, "no-uring", false, "do not use io_uring (Linux)")
	if s.sorts = what&Sorts != 0; s.sorts {
		f.BoolVar(&s.Opts.Ordered, "sort", false, "print in the order of the paths, compared name by name, or of the list with --files-from (default in the order in which files are finished)")
	}
	if what&Keeps != 0 {
		f.StringVar(&s.Cache, "cache", "", "keep the results in `FILE`, and open only files that have changed since")
		exclusive = append(exclusive, "cache files-from")
	}
	for _, names := range exclusive {
		cmd.MarkFlagsMutuallyExclusive(strings.Fields(names)...)
	}
}

// Choice adds a flag of cmd to f that takes one of the given values, which shells complete.
func Choice(cmd *cobra.Command, f *pflag.FlagSet, p *string, name, short, initial string, values []string, usage string) {
	*p = initial
	f.FuncP(name, short, usage, func(v string) error {
		if *p = v; !slices.Contains(values, v) {
			last := len(values) - 1
			return errors.New("want " + strings.Join(values[:last], ", ") + " or " + values[last])
		}
		return nil
	})
	f.Lookup(name).DefValue = initial
	cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

var symlinks = []string{fileproc.SymlinksSkip: "skip", fileproc.SymlinksFiles: "files", fileproc.SymlinksFollow: "follow"}

// Check validates the flags of cmd and completes the options.
func (s *Selection) Check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if s.Used = f.Lookup(hiddenFlag) != nil; !s.Used {
		return nil
	}
	const maxThreads = 1 << 16 // of fileproc.Options.Workers; checked before slices of that length are allocated
	if n := s.Opts.Workers; n < 0 || n > maxThreads {
		return fmt.Errorf("--threads is %d: want 1 to %d, or 0 for the number of processors", n, maxThreads)
	}
	s.Opts.Workers = cmp.Or(s.Opts.Workers, runtime.GOMAXPROCS(0))
	if err := s.checkIgnored(f); err != nil {
		return err
	}
	s.Opts.Symlinks = fileproc.Symlinks(slices.Index(symlinks, s.symlinks))
	if s.Opts.Ordered && s.symlinks == "follow" {
		return errors.New("--symlinks follow visits linked directories last, so --sort cannot be used with it")
	}
	s.patterns()
	if s.minSize > 0 || s.maxSize >= 0 || !s.newer.IsZero() || !s.older.IsZero() {
		s.Opts.Stat, s.Opts.Select = true, s.selects // Stat, so that a file whose metadata cannot be had is a failure
	}
	if s.shard != "" {
		var i, n int
		if _, err := fmt.Sscanf(s.shard+"\n", "%d/%d\n", &i, &n); err != nil || i < 1 || i > n {
			return fmt.Errorf("--shard is %q: want I/N with 1 ≤ I ≤ N", s.shard)
		}
		s.Opts.Shard, s.Opts.Shards = i-1, n
	}
	return nil
}

// selects is Options.Select for sizes and times, which do not matter for an argument.
func (s *Selection) selects(f *fileproc.File) bool {
	st, err := f.Stat()
	return err != nil || st.Size >= s.minSize && (s.maxSize < 0 || st.Size <= s.maxSize) && !st.ModTime.Before(s.newer) && (s.older.IsZero() || st.ModTime.Before(s.older)) || (&Item{F: f}).IsArgument()
}

// checkIgnored completes the options that say what is hidden and ignored.
func (s *Selection) checkIgnored(f *pflag.FlagSet) error {
	hidden, _ := f.GetBool(hiddenFlag) // no error: Flags has added them
	noIgnore, _ := f.GetBool(noIgnoreFlag)
	if s.List != "" || s.Opts.GitTracked || s.changed {
		// As with an argument, a file that a list or git names is not left out for being hidden or ignored, unless a flag asks for that.
		hidden = hidden || !f.Changed(hiddenFlag)
		noIgnore = noIgnore || !f.Changed(noIgnoreFlag)
	}
	if s.Null && s.List == "" && f.Lookup("print0") == nil {
		return errors.New("--null needs --files-from")
	}
	s.Opts.SkipHidden = !hidden && s.unrestricted < 2
	if !noIgnore && s.unrestricted == 0 {
		s.Opts.GitIgnore = true
		s.Opts.IgnoreFiles = []string{".gitignore", ".ignore"}
	}
	for _, name := range s.ignoreFiles {
		text, err := os.ReadFile(name)
		isName := filepath.Base(name) == name
		if err != nil && !(isName && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("--ignore-file: %w", err)
		}
		s.ignore = append(s.ignore, gitignore.Parse(text))
		if isName {
			s.Opts.IgnoreFiles = append(s.Opts.IgnoreFiles, name)
		}
	}
	return nil
}

// patterns translates -g and -E, which follow rg and fd, for fileproc.Options: a pattern without a slash matches at every
// depth, a leading slash stands for the directory, a leading ! excludes, and dir/** is what dir contains, not dir itself.
func (s *Selection) patterns() {
	include, exclude := s.Opts.Include, s.Opts.Exclude
	s.Opts.Include, s.Opts.Exclude = nil, nil
	for i, written := range slices.Concat(include, exclude) {
		flag, option, patterns := "--include", "Options.Include", &s.Opts.Include
		p, excluded := strings.CutPrefix(written, "!")
		if i >= len(include) {
			flag, p, excluded = "--exclude", written, true
		}
		if excluded {
			option, patterns = "Options.Exclude", &s.Opts.Exclude
		}
		switch {
		case strings.Contains(p, "/"):
			p = strings.TrimPrefix(p, "/")
		case p != "":
			p = "**/" + p
		}
		if strings.HasSuffix(p, "/**") {
			p += "/*"
		}
		*patterns = append(*patterns, p)
		s.written = append(s.written, [2]string{fmt.Sprintf("%s has the pattern %q,", option, p), fmt.Sprintf("%s has the pattern %q,", flag, written)})
	}
}

// fromHere returns the path from the working directory to dir, with a slash at its end, or "".
func fromHere(dir string) string {
	here, _ := filepath.Abs(".")
	path, _ := filepath.Abs(dir)
	if rel, err := filepath.Rel(here, path); err == nil { // they are on one volume
		path = rel
	}
	return strings.TrimPrefix(filepath.ToSlash(path)+"/", "./")
}

// core gives access to the hooks of the options.
var core = plumbing.Of[fileproc.Options, *fileproc.File, fileproc.Stat]()

// size returns a function that parses a flag's number of bytes into n.
func size(n *int64) func(string) error {
	return func(v string) (err error) {
		if *n, err = units.RAMInBytes(strings.TrimRight(v, "iIbB")); err != nil || *n+1 <= 0 { // negative, or too large
			return errors.New("want a number of bytes, optionally followed by K, M, G or T")
		}
		return nil
	}
}

// instant returns a function that parses a flag's point in time, or age, into t.
func instant(t *time.Time) func(string) error {
	return func(v string) (err error) {
		for _, layout := range []string{time.DateOnly, time.DateTime, time.RFC3339} {
			if *t, err = time.ParseInLocation(layout, v, time.Local); err == nil {
				return nil
			}
		}
		age, err := time.ParseDuration(v)
		for suffix, hours := range map[string]int64{"d": 24, "w": 7 * 24} {
			if n, found := strings.CutSuffix(v, suffix); found {
				k, wrong := strconv.ParseInt(n, 10, 32)
				age, err = time.ParseDuration(fmt.Sprintf("%dh", k*hours)) // an error if it overflows
				err = cmp.Or(wrong, err)
			}
		}
		if err != nil || age < 0 {
			return errors.New("want a date, a date and time, or an age such as 36h, 7d or 2w, of up to 292 years")
		}
		*t = time.Now().Add(-age)
		return nil
	}
}
