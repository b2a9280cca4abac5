package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc/internal/records"
	"github.com/spf13/pflag"
)

// A nameList is the value of --files-from and of -0.
type nameList struct {
	file string // "" if the flag is not set
	null bool   // names end with NUL bytes
}

func (l *nameList) flags(f *pflag.FlagSet) {
	f.StringVar(&l.file, "files-from", "",
		"process the files whose paths `FILE` lists, one a line, in place of directories; - is standard input; a path that ends with a slash stands for all files below it")
	if f.ShorthandLookup("0") == nil { // ls has -0 for its output
		f.BoolVarP(&l.null, "null", "0", false, "with --files-from: paths end with a NUL byte instead of a newline")
	}
}

// check completes the selection for --files-from. What a list names is not left out for being hidden or ignored, as an
// argument is not.
func (l *nameList) check(s *selection, f *pflag.FlagSet) error {
	if l.file == "" {
		if l.null && f.Lookup("print0") == nil {
			return errors.New("--null needs --files-from")
		}
		return nil
	}
	l.null, _ = f.GetBool(f.ShorthandLookup("0").Name) // no error: each subcommand has the flag
	if f.Changed(noIgnoreFlag) && s.ignores || len(s.ignoreFiles) > 0 {
		return errors.New("--files-from names files, so ignore files cannot be used with it")
	}
	s.ignores = false
	if !f.Changed(hiddenFlag) {
		s.opts.SkipHidden = false
	}
	return nil
}

var errFilesAndArguments = errors.New("--files-from takes the place of the arguments")

// eachListed calls do for each group of successive names that are relative to the same directory, with the prefix for
// their paths. Without names the whole directory is meant. A name is read when the one before has been taken.
func (a *app) eachListed(do func(dir, prefix string, names iter.Seq[string]) error) error {
	in := os.Stdin
	if a.sel.list.file != stdinName {
		var err error
		if in, err = os.Open(a.sel.list.file); err != nil {
			return fmt.Errorf("--files-from: %w", err)
		}
		defer in.Close()
	}
	end := byte('\n')
	if a.sel.list.null {
		end = 0
	}
	next, stop := iter.Pull2(records.All(a.ctx, in, end))
	defer stop()
	name, failed, ok := next()
	for ok && failed == nil && a.ctx.Err() == nil {
		dir, rel := splitName(name)
		prefix := prefixOf(dir)
		if dir == "." {
			prefix = ""
		}
		var names iter.Seq[string]
		if rel == "" {
			name, failed, ok = next()
		} else {
			names = func(yield func(string) bool) {
				for ok && rel != "" && yield(rel) {
					var at string
					if name, failed, ok = next(); !ok || failed != nil {
						return
					}
					if at, rel = splitName(name); at != dir {
						return
					}
				}
			}
		}
		if err := do(dir, prefix, names); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("--files-from: %w", failed)
	}
	return context.Cause(a.ctx)
}

// splitName returns the directory to open for a name and the rest, which is slash-separated: "/etc/x" is x in /etc of the
// file system's root, "../x" is x in the directory above. An empty rest stands for the directory itself.
func splitName(name string) (dir, rel string) {
	if name == "" {
		return ".", "." // which names no file either
	}
	name = filepath.ToSlash(name)
	volume := filepath.VolumeName(name)
	if rest := name[len(volume):]; strings.HasPrefix(rest, "/") {
		return filepath.FromSlash(volume + "/"), clean(rest)
	}
	rel = clean(name)
	for strings.HasPrefix(rel, "../") {
		dir, rel = dir+"../", rel[len("../"):]
	}
	if dir == "" {
		dir = "./"
	}
	return filepath.FromSlash(strings.TrimSuffix(dir, "/")), rel
}

// clean removes the elements of a path that mean nothing, and keeps a slash at the end.
func clean(name string) string {
	if name == "." {
		return name
	}
	if name[0] != '/' && name[0] != '.' && !strings.Contains(name, "//") && !strings.Contains(name, "/.") {
		return name
	}
	var kept []string
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part != "" && part != "." {
			kept = append(kept, part)
		}
	}
	rel := strings.Join(kept, "/")
	if last := parts[len(parts)-1]; rel != "" && (last == "" || last == ".") {
		rel += "/"
	}
	return rel
}
