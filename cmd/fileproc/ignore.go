package main

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// repositoryFiles returns the ignore files that git and rg read besides those within dir, for Options.IgnoreFiles, those
// that count more last: git's global one, .git/info/exclude, and those of the directories above, up to the repository's
// top. There are none outside a repository.
func repositoryFiles(dir string) []string {
	top, err := filepath.Abs(dir)
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	if err != nil {
		return nil // there is no way up
	}
	up := ""
	var files []string
	for !exists(filepath.Join(top, ".git")) {
		parent := filepath.Dir(top)
		if parent == top {
			return nil
		}
		top = parent
		up += "../"
		for _, name := range []string{".ignore", ".gitignore"} {
			// git does not follow links here either.
			if info, err := os.Lstat(filepath.Join(top, name)); err == nil && info.Mode().IsRegular() {
				files = append(files, up+name)
			}
		}
	}
	files = append(files, up+".git/info/exclude")
	if global := globalExcludes(top); up == "" && global != "" {
		files = append(files, global)
	} else if global, err := filepath.Rel(top, global); err == nil {
		files = append(files, up+"./"+filepath.ToSlash(global)) // its patterns are about the repository's top
	}
	slices.Reverse(files)
	return files
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// globalExcludes returns the path of git's core.excludesFile in the repository top, or "" if there is no such file.
func globalExcludes(top string) string {
	home, _ := os.UserHomeDir()
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" && home != "" {
		config = filepath.Join(home, ".config")
	}
	configs := []string{filepath.Join(config, "git", "config"), filepath.Join(home, ".gitconfig")}
	if global, set := os.LookupEnv("GIT_CONFIG_GLOBAL"); set {
		configs = []string{global}
	}
	if os.Getenv("GIT_CONFIG_NOSYSTEM") == "" {
		configs = append([]string{"/etc/gitconfig"}, configs...)
	}
	file := filepath.Join(config, "git", "ignore")
	for _, c := range append(configs, filepath.Join(top, ".git", "config")) {
		if f, ok := excludesFile(c); ok {
			file = f
		}
	}
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		file = filepath.Join(home, rest)
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || !filepath.IsAbs(file) {
		return ""
	}
	return file
}

// excludesFile returns what a file of git's configuration says of core.excludesFile. Files that it includes are not read.
func excludesFile(config string) (file string, ok bool) {
	f, err := os.Open(config)
	if err != nil {
		return "", false
	}
	defer f.Close()
	section := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section, line, _ = strings.Cut(line[1:], "]")
			line = strings.TrimSpace(line)
		}
		name, value, found := strings.Cut(line, "=")
		if !found || !strings.EqualFold(section, "core") || !strings.EqualFold(strings.TrimSpace(name), "excludesFile") {
			continue
		}
		value = strings.TrimSpace(value)
		if quoted, err := strconv.QuotedPrefix(value); err == nil {
			value, _ = strconv.Unquote(quoted)
		} else if i := strings.IndexAny(value, "#;"); i >= 0 {
			value = strings.TrimSpace(value[:i])
		}
		file, ok = value, true
	}
	return file, ok
}
