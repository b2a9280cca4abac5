package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc/internal/gitignore"
)

// maxIncludes is the maximum depth of includes in configuration files, as in git.
const maxIncludes = 10

// A config holds the variables of git's configuration.
type config struct {
	repo           *Repository
	home           string
	excludesFile   string
	attributesFile string            // of the user, unless core.attributesFile names another
	others         map[string]string // other variables
	worktreeConfig bool              // extensions.worktreeConfig: the work tree has a configuration of its own
	skipUnreadable bool              // read skips the current file if the user may not read it
}

// absolute returns the absolute path of a file that the environment names.
func absolute(name string) string {
	if name == "" {
		return ""
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

func getenv(name, unset string) string {
	if value, set := os.LookupEnv(name); set {
		return value
	}
	return unset
}

// read reads a configuration file, which need not exist, and the files that it
// includes.
func (c *config) read(file string, included int) error {
	content, err := c.repo.top.ReadFile(file, maxConfig)
	// HOME may be another user's home.
	if isAbsent(err) || c.skipUnreadable && included == 0 && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = parse(string(content), func(name, value string) error {
		c.others[name] = value
		switch condition, conditional := strings.CutPrefix(name, "includeif."); {
		case name == "core.excludesfile":
			c.excludesFile, err = c.expand(value, "")
			return err
		case name == "extensions.worktreeconfig":
			c.worktreeConfig = isTrue(value)
		case name == "include.path", conditional && strings.HasSuffix(condition, ".path") && c.matches(strings.TrimSuffix(condition, ".path"), file):
			if included == maxIncludes {
				return fmt.Errorf("includes are nested more than %d deep", maxIncludes)
			}
			value, err := c.expand(value, dirOf(file))
			if err != nil {
				return err
			}
			return c.read(value, included+1)
		}
		return nil
	})
	var e *fs.PathError
	if err != nil && !errors.As(err, &e) {
		err = &fs.PathError{Op: "read", Path: c.repo.top.path(file), Err: err}
	}
	return err
}

// expand returns the path that value stands for. A relative path begins at dir.
func (c *config) expand(value, dir string) (string, error) {
	switch rest, home := strings.CutPrefix(value, "~/"); {
	case value == "":
		return "", nil
	case home:
		return join(c.home, rest), nil
	case value[0] == '~':
		name, rest, _ := strings.Cut(value[1:], "/")
		home, err := c.homeOf(name)
		if err != nil {
			return "", fmt.Errorf("%s: another user's home directory, which is not known: %w", value, err)
		}
		return join(home, rest), nil
	}
	return join(dir, value), nil
}

// homeOf returns the home directory of another user.
func (c *config) homeOf(name string) (string, error) {
	users, err := c.repo.top.ReadFile("/etc/passwd", maxConfig)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(users)) {
		if fields := strings.Split(line, ":"); len(fields) > 5 && fields[0] == name {
			return fields[5], nil
		}
	}
	return "", fs.ErrNotExist
}

// dirOf returns the directory of a file, and leaves any ".." in the path.
func dirOf(file string) string {
	dir, _ := filepath.Split(file)
	return dir
}

// matches reports whether the condition of an include in file is true: it is gitdir, with a
// pattern that the repository matches. Other conditions are false.
func (c *config) matches(condition, file string) bool {
	kind, pattern, _ := strings.Cut(condition, ":")
	if kind != "gitdir" && kind != "gitdir/i" {
		return false
	}
	in, rest, _ := strings.Cut(pattern, "/")
	switch in {
	case "~":
		pattern = quoteGlob(c.home) + "/" + rest
	case ".":
		pattern = quoteGlob(c.repo.top.path(dirOf(file))) + "/" + rest
	default:
		if !filepath.IsAbs(filepath.FromSlash(pattern)) {
			pattern = "**/" + pattern
		}
	}
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	dirs := []string{resolved(c.repo.top.path(c.repo.dir))}
	if c.repo.dir == ".git" && c.repo.top.Given != "" {
		dirs = append(dirs, filepath.Join(c.repo.top.Given, ".git"))
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		dir = filepath.ToSlash(dir)
		if kind == "gitdir/i" {
			return gitignore.MatchPath(strings.ToLower(pattern), strings.ToLower(dir))
		}
		return gitignore.MatchPath(pattern, dir)
	})
}

// quoteGlob returns a pattern that matches only dir, with its symbolic links
// resolved.
func quoteGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(filepath.ToSlash(resolved(dir)))
}

func resolved(name string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	return name
}

func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "yes", "on":
		return true
	}
	n, err := strconv.Atoi(value)
	return err == nil && n != 0
}

// parse calls set for each variable of a configuration file. Name is
// section.variable or section.subsection.variable, with section and variable in
// lower case. The value of a variable without one is "true".
func parse(content string, set func(name, value string) error) error {
	s := scanner{rest: strings.ReplaceAll(strings.TrimPrefix(content, "\ufeff"), "\r\n", "\n")}
	section := ""
	for line := 1; ; line += strings.Count(s.taken, "\n") {
		s.taken = ""
		s.take(" \t\n\r")
		if s.rest == "" {
			return nil
		}
		var name, value string
		var ok bool
		switch c := s.rest[0]; {
		case c == '#' || c == ';':
			s.until("\n")
			continue
		case c == '[':
			if section, ok = s.section(); ok {
				continue
			}
		case isAlpha(c):
			if name, value, ok = s.variable(); ok {
				if err := set(section+name, value); err != nil {
					return err
				}
				continue
			}
		}
		return fmt.Errorf("line %d is not valid in a git configuration", line+strings.Count(s.taken, "\n"))
	}
}

// A scanner moves what its methods return from the beginning of rest to taken.
type scanner struct {
	rest, taken string
}

func (s *scanner) skip(n int) string {
	taken := s.rest[:n]
	s.rest, s.taken = s.rest[n:], s.taken+taken
	return taken
}

func (s *scanner) take(set string) string {
	return s.skip(len(s.rest) - len(strings.TrimLeft(s.rest, set)))
}

func (s *scanner) until(set string) string {
	if i := strings.IndexAny(s.rest, set); i >= 0 {
		return s.skip(i)
	}
	return s.skip(len(s.rest))
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	nameSet = letters + "0123456789-"
)

func isAlpha(c byte) bool { return strings.IndexByte(letters, c) >= 0 }

// section takes the header of a section and returns its name with a dot appended.
func (s *scanner) section() (string, bool) {
	s.skip(1)
	name := strings.ToLower(s.take(nameSet+".")) + "."
	if s.take(" \t") != "" {
		if !strings.HasPrefix(s.rest, `"`) {
			return "", false
		}
		for s.skip(1); ; {
			name += s.until("\"\\\n")
			if len(s.rest) < 2 || s.rest[0] == '\n' || s.rest[:2] == "\\\n" {
				return "", false
			}
			if s.skip(1) == `"` {
				break
			}
			name += s.skip(1)
		}
		name += "."
	}
	if name == "." || !strings.HasPrefix(s.rest, "]") {
		return "", false
	}
	s.skip(1)
	return name, true
}

func (s *scanner) variable() (name, value string, ok bool) {
	name = strings.ToLower(s.take(nameSet))
	s.take(" \t")
	switch {
	case s.rest == "" || s.rest[0] == '\n':
		return name, "true", true
	case s.rest[0] != '=':
		return "", "", false
	}
	s.skip(1)
	value, ok = s.value()
	return name, value, ok
}

// value takes and returns a value. Outside quotes, it drops leading and trailing
// blanks and a comment that begins with # or ;.
func (s *scanner) value() (string, bool) {
	var value, blanks strings.Builder
	for quoted := false; ; {
		if s.rest == "" || s.rest[0] == '\n' {
			return value.String(), !quoted
		}
		c := s.skip(1)[0]
		switch {
		case !quoted && strings.IndexByte(" \t\r", c) >= 0:
			if value.Len() > 0 {
				blanks.WriteByte(c)
			}
			continue
		case !quoted && (c == '#' || c == ';'):
			s.until("\n")
			continue
		}
		value.WriteString(blanks.String())
		blanks.Reset()
		switch c {
		case '"':
			quoted = !quoted
		case '\\':
			if s.rest == "" { // the end of the file counts as the end of a line
				continue
			}
			at := strings.IndexByte("\ntbn\\\"", s.skip(1)[0])
			if at < 0 {
				return "", false
			}
			if at > 0 { // at 0 a backslash before a newline continues the line
				value.WriteByte("\n\t\b\n\\\""[at])
			}
		default:
			value.WriteByte(c)
		}
	}
}
