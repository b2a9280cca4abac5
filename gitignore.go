package fileproc

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc/internal/gitrepo"
)

// GitIgnoreFiles returns the [Options.IgnoreFiles] with which a run over root
// leaves out what git ignores. Root is a directory of the operating system; it
// need not be the repository's top. The result is, in increasing precedence:
// git's global file (core.excludesFile), the repository's info/exclude, the
// .gitignore files above root up to the repository's top, and the name
// ".gitignore" for those in root. Outside a repository it is that name alone.
//
// The names are further ignore files, such as ".ignore", that each directory
// may have. They take precedence over a .gitignore beside them.
//
// The run also leaves out files that git tracks although a pattern ignores
// them. It leaves out neither .git, for which [Options.Exclude] takes "**/.git",
// nor other repositories below root. A pattern that ignores root itself has no
// effect.
//
// The repository is the one of the nearest .git in root or above that git
// accepts: a directory, or, in submodules and further work trees, a file.
// GitIgnoreFiles reads the configuration of the system (/etc/gitconfig), the
// user and the repository, and the files that they include, always or by
// gitdir. Variables for the location of the configuration (HOME,
// XDG_CONFIG_HOME, GIT_CONFIG_GLOBAL and the like) have effect, those for the
// repository's (GIT_DIR and the like) do not. If one of these files is damaged
// or cannot be read, GitIgnoreFiles returns an error and only the names. Unlike
// git, it searches for the repository across file systems.
func GitIgnoreFiles(root string, names ...string) ([]string, error) {
	names = append([]string{".gitignore"}, names...)
	dir, err := filepath.Abs(root)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return names, err
	}
	repo, err := gitrepo.Find(dir)
	if err != nil || repo == nil {
		return names, err
	}
	global, err := repo.ExcludesFile()
	if err != nil {
		return names, err
	}
	var levels []string // from the top to root
	if rel, err := filepath.Rel(repo.Top, dir); err == nil && rel != "." {
		levels = strings.Split(filepath.ToSlash(rel), "/")
	}
	var files []string
	for _, f := range []string{global, filepath.Join(repo.Common, "info", "exclude")} {
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			files = append(files, aboutTop(repo.Top, f, len(levels)))
		}
	}
	for i := range levels {
		above := filepath.Join(repo.Top, filepath.Join(levels[:i]...))
		for _, name := range names {
			// Git follows no link here either.
			if info, err := os.Lstat(filepath.Join(above, name)); err == nil && info.Mode().IsRegular() {
				files = append(files, strings.Repeat("../", len(levels)-i)+name)
			}
		}
	}
	return append(files, names...), nil
}

// aboutTop returns file as an element of Options.IgnoreFiles whose patterns
// apply to paths in top, which is up directories above root. If file is on
// another volume, that is impossible, and they apply to paths in root.
func aboutTop(top, file string, up int) string {
	rel, err := filepath.Rel(top, file)
	rel = filepath.ToSlash(rel)
	switch {
	case err != nil, up == 0 && !filepath.IsLocal(rel):
		return file
	case !filepath.IsLocal(rel) || !isPath(rel):
		rel = "./" + rel
	}
	return strings.Repeat("../", up) + rel
}
