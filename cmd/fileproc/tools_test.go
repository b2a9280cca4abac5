//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/fileproc/fileproc/internal/testtree"
)

// tool returns the path of a program to compare with, and skips the test if there is none.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("no %s to compare with", strings.Join(names, " or "))
	return ""
}

// runTool runs a program in dir and returns what it prints, and its exit code.
func runTool(t *testing.T, cmd *exec.Cmd, dir string) (string, int) {
	t.Helper()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if os.Getenv("XDG_CONFIG_HOME") == "" {
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+t.TempDir())
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
		t.Fatalf("%v: exit code %d: %s", cmd, code, &stderr)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// sorted splits s, whose parts end with end, and sorts the parts.
func sorted(s string, end string) []string {
	parts := strings.Split(strings.TrimSuffix(s, end), end)
	slices.Sort(parts)
	return parts
}

// requireSameLines compares lines regardless of order. It shows only the first difference, because outputs are long.
func requireSameLines(t *testing.T, want, got, end string) {
	t.Helper()
	w, g := sorted(want, end), sorted(got, end)
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			t.Fatalf("want %.200q, got %.200q", w[i], g[i])
		}
	}
	require.Len(t, g, len(w))
}

// oddTree makes a tree with difficult names, ignore files, links and contents.
func oddTree(t *testing.T) string {
	dir := t.TempDir()
	long := strings.Repeat("needle in a long line ", 20000)
	var numbers strings.Builder
	for i := range 11_000 { // more than 1 MiB
		fmt.Fprintf(&numbers, "line %d %084d needle\n", i, 0)
	}
	files := map[string]string{
		"plain.txt":                      "a needle\nno\nNeedle\nneedles needle\n",
		"empty":                          "",
		"unfinished":                     "x\nneedle",
		"crlf.txt":                       "needle\r\nx\r\n",
		"blank":                          "\n\n\nneedle\n\n",
		"bom.txt":                        "\xef\xbb\xbfneedle\n",
		"latin1":                         "caf\xe9 needle \xff\n",
		"utf8.txt":                       "größe needle straße\nＮＥＥＤＬＥ\n",
		"binary":                         "needle\n\x00needle\n",
		"long":                           long + "\n" + long,
		"many":                           numbers.String(),
		"sub/deep/er/file.go":            "package needle\n",
		"sub/.hidden/file":               "needle\n",
		".hidden":                        "needle\n",
		".gitignore":                     "*.log\n/build\n!keep.log\ndocs/*.tmp\n# needle\n",
		"sub/.gitignore":                 "!special.log\nskip/\n",
		".ignore":                        "ignored-by-ignore\n",
		"a.log":                          "needle\n",
		"keep.log":                       "needle\n",
		"sub/special.log":                "needle\n",
		"sub/skip/file":                  "needle\n",
		"build/out":                      "needle\n",
		"sub/build/out":                  "needle\n",
		"docs/x.tmp":                     "needle\n",
		"docs/y/x.tmp":                   "needle\n",
		"ignored-by-ignore":              "needle\n",
		"space name/a b":                 "needle\n",
		"new\nline":                      "needle\n",
		`back\slash`:                     "needle\n",
		"carriage\rreturn":               "needle\n",
		"-dash":                          "needle\n",
		"*star":                          "needle\n",
		"\u00fc\u4e16\u754c.txt":         "needle\n",
		"\tcontrol\x01\x1b[31m":          "needle\n",
		"aa/" + strings.Repeat("n", 200): "needle\n",
	}
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	if err := os.WriteFile(filepath.Join(dir, "not\xff\xfeutf8"), []byte("needle\n"), 0o666); err != nil {
		t.Logf("left out: a name that is not UTF-8: %v", err)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "void/void"), 0o777))
	require.NoError(t, os.Symlink("plain.txt", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("sub", filepath.Join(dir, "linked")))
	require.NoError(t, os.Link(filepath.Join(dir, "many"), filepath.Join(dir, "sub/many-too")))
	return dir
}

// trees returns the trees to compare results on: an odd one and a real one.
func trees(t *testing.T) map[string]string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return map[string]string{
		"odd":  oddTree(t),
		"real": filepath.Join(strings.TrimSpace(string(out)), "src", "go"),
	}
}

func TestLsListsWhatFindLists(t *testing.T) {
	find := tool(t, "find")
	for name, dir := range trees(t) {
		t.Run(name, func(t *testing.T) {
			want, _ := runTool(t, exec.Command(find, ".", "-type", "f", "-print0"), dir)
			got, _ := runTool(t, command(t, "ls", "-uu", "-0", "."), dir)
			requireSameLines(t, want, got, "\x00")
		})
	}
}

func TestLsListsWhatFdLists(t *testing.T) {
	fd := tool(t, "fd", "fdfind")
	for name, dir := range trees(t) {
		for _, flags := range [][2]string{
			{"", ""}, {"--no-ignore", "-u"}, {"--hidden", "--hidden"}, {"--max-depth=2", "-d2"}, {"--size=+1k", "--min-size=1000"},
		} {
			t.Run(name+flags[1], func(t *testing.T) {
				base := []string{"--type=f", "--print0", "--no-global-ignore-file", "--no-ignore-parent", "--strip-cwd-prefix"}
				// fd reads .gitignore only in a repository.
				if name == "odd" {
					require.NoError(t, os.MkdirAll(filepath.Join(dir, ".git"), 0o777))
				}
				want, _ := runTool(t, exec.Command(fd, append(base, strings.Fields(flags[0])...)...), dir)
				got, _ := runTool(t, command(t, append([]string{"ls", "-0"}, strings.Fields(flags[1])...)...), dir)
				requireSameLines(t, want, got, "\x00")
			})
		}
	}
}

// Patterns mean what they mean to rg.
func TestLsListsWhatRgLists(t *testing.T) {
	rg := tool(t, "rg")
	dir := oddTree(t)
	for _, flags := range []string{
		"-g file.go", "-g *.txt", "-g !*.txt", "-g *.txt -g !u*", "-g sub/*/er/*", "-g /*.txt", "-g /sub/**", "-g !sub", "-g !/deep", "-g !deep -g *.go",
		"-g !sub/deep", "-g {plain,bom}.txt", "-g er/*", "-g **/er/*", "-g sub/**", "-g !sub/**", "-g !**/file.go/**", "-g **/er/**",
	} {
		t.Run(flags, func(t *testing.T) {
			want, _ := runTool(t, exec.Command(rg, append(strings.Fields(flags), "--files", "-0", "-uu", "--no-config")...), dir)
			got, _ := runTool(t, command(t, append([]string{"ls", "-0", "-uu"}, strings.Fields(flags)...)...), dir)
			requireSameLines(t, want, got, "\x00")
		})
	}
}

// Ignore files above the directory, and git's global ones, apply as in git and rg.
func TestLsReadsTheIgnoreFilesOfTheRepository(t *testing.T) {
	git, rg := tool(t, "git"), tool(t, "rg")
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, home)
	}
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	top := oddTree(t)
	write := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	_, code := runTool(t, exec.Command(git, "init", "-q"), top)
	require.Zero(t, code)
	require.NoError(t, os.Remove(filepath.Join(top, ".ignore"))) // git does not read it
	write(filepath.Join(top, ".git/info/exclude"), "/sub/many-too\n*.info\n/file.go\n")
	write(filepath.Join(top, ".gitignore"), "*.log\n/build\n!keep.log\ndocs/*.tmp\n/sub/deep/x*\n!n.info\n")
	write(filepath.Join(top, "sub/deep/.gitignore"), "er/y?\n!/er/xa\n/z\n")
	for _, name := range []string{"a.info", "n.info", "xb", "er/xa", "er/xb", "er/yy", "er/z", "z", "g.one", "g.two", "er/g.one", "er/file.go"} {
		write(filepath.Join(top, "sub/deep", name), "needle\n")
	}
	anchored := false
	check := func(t *testing.T) {
		for _, dir := range []string{"", "sub", "sub/deep", "sub/deep/er", "docs", "docs/y"} {
			want, _ := runTool(t, exec.Command(git, "ls-files", "-co", "--exclude-standard", "-z"), filepath.Join(top, dir))
			want = strings.Join(slices.DeleteFunc(strings.SplitAfter(want, "\x00"), func(name string) bool {
				info, err := os.Lstat(filepath.Join(top, dir, strings.TrimSuffix(name, "\x00")))
				return err != nil || !info.Mode().IsRegular()
			}), "")
			got, _ := runTool(t, command(t, "ls", "-0", "--hidden", "-E", ".git"), filepath.Join(top, dir))
			requireSameLines(t, want, got, "\x00")
			if anchored {
				continue // rg applies the patterns of the global file to the working directory
			}
			want, _ = runTool(t, exec.Command(rg, "--files", "-0", "--no-config"), filepath.Join(top, dir))
			got, _ = runTool(t, command(t, "ls", "-0"), filepath.Join(top, dir))
			requireSameLines(t, want, got, "\x00")
		}
	}
	t.Run("no global file", check)
	write(filepath.Join(home, "git/ignore"), "*.one\n")
	t.Run("the usual global file", check)
	write(filepath.Join(home, ".gitconfig"), "[user]\n\tname = x\n[Core]\n\teditor = vi\n\texcludesfile = ~/mine\n")
	write(filepath.Join(home, "mine"), "*.two\n/sub/deep/er/file.go\n")
	anchored = true
	t.Run("another global file", check)
}

// With --tracked, ls prints the files of git's index that the work tree still has, in a directory of the repository, too.
func TestLsOfWhatGitTracks(t *testing.T) {
	git, top := tool(t, "git"), oddTree(t)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	for _, args := range [][]string{{"init", "-q"}, {"add", "-f", "."}, {"rm", "-q", "--cached", ".gitignore", "sub/.gitignore"}} {
		_, code := runTool(t, exec.Command(git, args...), top)
		require.Zero(t, code, args)
	}
	require.NoError(t, os.Remove(filepath.Join(top, ".ignore")))
	for _, dir := range []string{"", "sub"} {
		want, _ := runTool(t, exec.Command(git, "ls-files", "-z"), filepath.Join(top, dir))
		want = strings.Join(slices.DeleteFunc(strings.SplitAfter(want, "\x00"), func(name string) bool {
			info, err := os.Lstat(filepath.Join(top, dir, strings.TrimSuffix(name, "\x00")))
			return err != nil || !info.Mode().IsRegular()
		}), "")
		require.Contains(t, want, ".log", "git tracks what it would ignore")
		got, _ := runTool(t, command(t, "ls", "-0", "--tracked"), filepath.Join(top, dir))
		requireSameLines(t, want, got, "\x00")
	}
	_, code := runTool(t, exec.Command(git, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "-m", "m"), top)
	require.Zero(t, code)
	require.NoError(t, os.WriteFile(filepath.Join(top, "sub", "new.go"), nil, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(top, "file.go"), []byte("changed"), 0o666))
	got, _ := runTool(t, command(t, "ls", "--changed", "--sort"), top)
	require.Equal(t, ".gitignore\nfile.go\nsub/.gitignore\nsub/new.go\n", got)
	got, _ = runTool(t, command(t, "ls", "--changed", "sub"), top)
	require.Equal(t, "sub/.gitignore\nsub/new.go\n", got)
	several := command(t, "ls", "--changed", "sub", "docs")
	several.Dir = top
	require.Error(t, several.Run())
}

// Of two ignore files that say the opposite, the same one counts as for rg, wherever both are.
func TestIgnoreFilesHaveTheOrderOfRg(t *testing.T) {
	git, rg := tool(t, "git"), tool(t, "rg")
	home, top := t.TempDir(), t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, home)
	}
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	_, code := runTool(t, exec.Command(git, "init", "-q"), top)
	require.Zero(t, code)
	write := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	for _, name := range []string{"a", "b", "sub/a", "sub/b", "sub/deep/a", "sub/deep/b"} {
		write(filepath.Join(top, name), "")
	}
	given := filepath.Join(home, "given")
	sources := []string{given, filepath.Join(home, "git/ignore")}
	for _, name := range []string{".gitignore", "sub/.gitignore", ".git/info/exclude", "sub/deep/.gitignore", ".ignore", "sub/.ignore", "sub/deep/.ignore"} {
		sources = append(sources, filepath.Join(top, name))
	}
	for i, ignores := range sources {
		for j, includes := range sources {
			if i == j || !testtree.Takes(i+j) {
				continue
			}
			for _, source := range sources {
				require.NoError(t, os.RemoveAll(source))
			}
			write(given, "")
			write(ignores, "a\n")
			write(includes, "!a\n")
			for _, dir := range []string{"", "sub", "sub/deep"} {
				want, _ := runTool(t, exec.Command(rg, "--files", "-0", "--no-config", "--ignore-file", given), filepath.Join(top, dir))
				got, _ := runTool(t, command(t, "ls", "-0", "--ignore-file", given), filepath.Join(top, dir))
				require.Equal(t, sorted(want, "\x00"), sorted(got, "\x00"), "%s: %s ignores, %s includes", dir, ignores, includes)
			}
		}
	}
}

func TestHashPrintsWhatSha256sumPrints(t *testing.T) {
	find := tool(t, "find")
	sum := tool(t, "sha256sum")
	for name, dir := range trees(t) {
		t.Run(name, func(t *testing.T) {
			want, _ := runTool(t, exec.Command(find, ".", "-type", "f", "-exec", sum, "{}", "+"), dir)
			got, _ := runTool(t, command(t, "hash", "."), dir)
			requireSameLines(t, want, got, "\n")

			// Each program checks the other's output and finds the same changes.
			list := filepath.Join(t.TempDir(), "list")
			for _, format := range []string{"--text", "--binary", "--tag"} {
				lines, _ := runTool(t, exec.Command(find, ".", "-type", "f", "-exec", sum, format, "{}", "+"), dir)
				changed := strings.Replace(lines, "a", "0", 1) + "no checksum\n"
				require.NoError(t, os.WriteFile(list, []byte(changed), 0o666))
				want, wantCode := runTool(t, exec.Command(sum, "--check", list), dir)
				got, gotCode := runTool(t, command(t, "hash", "--check", list), dir)
				require.Equal(t, want, got)
				require.Equal(t, wantCode, gotCode)
			}
			require.NoError(t, os.WriteFile(list, []byte(got), 0o666))
			_, code := runTool(t, exec.Command(sum, "--check", "--strict", list), dir)
			require.Zero(t, code)
		})
	}
}

// --check accepts the forms of a line that sha256sum accepts, and no others.
func TestHashChecksTheLinesThatSha256sumChecks(t *testing.T) {
	sha256sum := tool(t, "sha256sum")
	dir := t.TempDir()
	for _, name := range []string{"a", " a", "*a", `b\c`, "d\ne", "f) = g", "(h"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	const sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, list := range []string{
		sum + "  a", sum + " *a", " \t " + sum + "  a", sum + " a", sum + "\ta", sum + "\t a", sum + "\t*a", sum + "a", sum + "   a", sum + "  *a",
		sum, sum + " ", sum + "  ", sum + "  a\r", strings.ToUpper(sum) + "  a", sum[1:] + "  a", "0" + sum + "  a", sum[1:] + "g  a", sum + "  a ",
		"SHA256 (a) = " + sum, "SHA256(a)= " + sum, "SHA256(a)=" + sum, "SHA256 (a)\t=\t " + sum, "  SHA256 (a) = " + sum, "SHA256  (a) = " + sum,
		"SHA256 (a) = " + sum + " ", "SHA256 (f) = g) = " + sum, "SHA256 ((h) = " + sum, "SHA256 (a = " + sum, "SHA256 a = " + sum, "sha256 (a) = " + sum,
		"SHA512 (a) = " + sum, "SHA256 (a) = " + sum[2:], `\SHA256 (b\\c) = ` + sum, ` \` + sum + `  d\ne`, `\` + sum + ` *b\\c`, `\` + sum + `  b\c`,
		`\` + sum + `  b\`, sum + `  b\c`, `\` + sum + `  a`, `\\` + sum + `  a`, `\ ` + sum + `  a`, "# " + sum + "  a", " # " + sum + "  a",
		sum + "x a\n" + sum + " a\nSHA256 (a) = " + sum, sum + "  -\n" + sum + "  a", sum + " *-\n" + sum + "  a", "SHA256 (-) = " + sum,
	} {
		t.Run(list, func(t *testing.T) {
			check := func(cmd *exec.Cmd) (string, int) {
				cmd.Stdin = strings.NewReader(list + "\n")
				return runTool(t, cmd, dir)
			}
			want, wantCode := check(exec.Command(sha256sum, "--check"))
			got, gotCode := check(command(t, "hash", "--check"))
			require.Equal(t, want, got)
			require.Equal(t, wantCode, gotCode)
		})
	}
}

// The README shows the real output of its commands, standard output first.
func TestReadmeShowsWhatTheCommandsPrint(t *testing.T) {
	dir := t.TempDir()
	files, err := txtar.ParseFile("testdata/readme.txtar")
	require.NoError(t, err)
	require.NoError(t, txtar.Write(files, dir))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := strings.Split(string(readme), "```console\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```\n")
		for _, call := range strings.Split("\n"+block, "\n$ ")[1:] {
			line, want, _ := strings.Cut(strings.TrimSuffix(call, "\n")+"\n", "\n")
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(command(t).Path)+":"+os.Getenv("PATH"))
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			cmd.Run() // a command that finds nothing exits with 1
			require.Equal(t, want, stdout.String()+stderr.String(), line)
		}
	}
}

// Whether du's sum includes directories and links depends on its version, so the sum is compared with find's sizes.
func TestDuSumsUpWhatFindLists(t *testing.T) {
	find := tool(t, "find")
	if out, err := exec.Command(find, "-version").Output(); err != nil || !bytes.Contains(out, []byte("GNU")) {
		t.Skip("no GNU find to compare with")
	}
	for name, dir := range trees(t) {
		t.Run(name, func(t *testing.T) {
			list, _ := runTool(t, exec.Command(find, ".", "-type", "f", "-printf", "%D:%i %s\n"), dir)
			lines := slices.Compact(sorted(list, "\n"))
			var want int64
			for _, line := range lines {
				var id string
				var size int64
				_, err := fmt.Sscan(line, &id, &size)
				require.NoError(t, err)
				want += size
			}
			got, _ := runTool(t, command(t, "du", "-s", "."), dir)
			require.Equal(t, fmt.Sprintf("%d\t.\n", want), got)
		})
	}
}

// A directory that lies within another argument is printed once.
func TestDuPrintsTheDirectoriesThatDuPrints(t *testing.T) {
	du := tool(t, "du")
	names := func(s string) (names []string) {
		for _, line := range sorted(s, "\n") {
			_, name, _ := strings.Cut(line, "\t")
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	for name, dir := range trees(t) {
		calls := []string{"."}
		if name == "odd" {
			calls = append(calls, "-d 1 .", ". sub", "sub .", "sub/deep/er linked/deep .", "-l sub .", ". .")
		}
		for _, call := range calls {
			t.Run(name+" "+call, func(t *testing.T) {
				args := strings.Fields(call)
				want, _ := runTool(t, exec.Command(du, args...), dir)
				got, _ := runTool(t, command(t, append([]string{"du"}, args...)...), dir)
				require.Equal(t, names(want), names(got))
			})
		}
	}
}

func TestGrepPrintsWhatRgPrints(t *testing.T) {
	rg := tool(t, "rg")
	patterns := map[string][]string{
		"odd": {
			"needle", "^needle", "needle$", "need.e", "n[aeiou]+dle", "absent", "(needle|line) [0-9]*7", "x|y|z", "needles?", "",
			`\.|\*`, "line 1?2?3", "e{2}", "[^a-z ]needle", "in .* long line needle",
		},
		"real": {"func", "import|return", `[A-Z]+_[a-z]`, `\berr\b.*return`, "TODO.*:", `\tif .*err`, "[0-9]{4}-[0-9]{2}"},
	}
	flags := []string{
		"-n", "-c", "-l", "-v -n", "-c -v", "-o -n", "-i -n", "-w -n", "-x -n", "-m2", "-F -n", "-w -o", "-i -w -c", "-a -c", "-S -c",
		"-n -C2", "-n -B1", "-n -A3", "-n -v -C1", "-u -c", "--hidden -l", "-j1 -n", "-e other -n",
	}
	for name, dir := range trees(t) {
		for i, pattern := range patterns[name] {
			for j, flag := range flags {
				if !testtree.Takes(i + j) {
					continue
				}
				t.Run(fmt.Sprintf("%s %q %s", name, pattern, flag), func(t *testing.T) {
					if pattern == "" && strings.ContainsAny(flag, "ow") {
						return // rg prints empty matches, grep and this command do not
					}
					args := strings.Fields(flag)
					want, wantCode := runTool(t, exec.Command(rg, append(args, "--no-heading", "--no-config", "--no-require-git",
						"--no-ignore-global", "--no-ignore-parent", "--no-messages", "--color=never", "-e", pattern, ".")...), dir)
					got, gotCode := runTool(t, command(t, append(append([]string{"grep"}, args...), "-e", pattern, ".")...), dir)
					requireSameLines(t, want, got, "\n")
					require.Equal(t, wantCode, gotCode)
				})
			}
		}
	}
}

// Capitals of escapes, classes, flags and names of groups do not stand for themselves.
func TestSmartCaseIsThatOfRg(t *testing.T) {
	rg := tool(t, "rg")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("ABC\nabc\n\\A\n\\a\nÉ\né\n"), 0o666))
	for _, pattern := range []string{
		`abc`, `aBc`, `\pLbc`, `\pLBc`, `\p{L}bc`, `\p{Lu}bc`, `\p{Lu}`, `\PLbc`, `\Sbc`, `\Abc`, `\ABc`, `\\A`, `\\a`, `\x61bc`,
		`(?P<N>a)bc`, `(?P<N>A)bc`, `[[:upper:]]`, `[[:alpha:]A]b`, `[^A]bc`, `[A-Z]bc`, `(?U)a.*`, `(?U:a)bc`, `É`, `é`, `.`, `a{1}B`,
	} {
		for _, flags := range []string{"-cS", "-cSF"} {
			want, _ := runTool(t, exec.Command(rg, "--no-config", flags, "-e", pattern, "f"), dir)
			got, _ := runTool(t, command(t, "grep", flags, "-e", pattern, "f"), dir)
			require.Equal(t, want, got, "%s %s", flags, pattern)
		}
	}
}

// asAnother returns a call of the command that root makes as another user.
func asAnother(t *testing.T, args ...string) *exec.Cmd {
	if os.Geteuid() != 0 {
		return command(t, args...)
	}
	dir := t.TempDir()
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skipf("root, without a copy of this program for another user: %v", err)
	}
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fileproc"), exe, 0o755))
	cmd := exec.Command(filepath.Join(dir, "fileproc"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// What cannot be read or judged is an error, and the other files and arguments are processed all the same.
func TestWhatCannotBeReadIsReported(t *testing.T) {
	root := t.TempDir()
	testtree.Removable(t, root)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for _, name := range []string{"a", "closed", "names-only", "z"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name, "f.md"), []byte("---\nx: x\n---\n"), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "file-closed"), nil, 0))
	for name, mode := range map[string]os.FileMode{"closed": 0, "names-only": 0o644} {
		require.NoError(t, os.Chmod(filepath.Join(root, name), mode))
	}
	for _, args := range []string{
		"ls a closed z", "ls --sort a closed z", "grep x a closed z", "hash a closed z", "du a closed z", "stats a closed z", "frontmatter a closed z",
		"ls --min-size 1 a names-only z", "ls --newer 1d names-only a z", "du --max-size 1K a names-only z", "stats --older 2001-01-01 names-only",
		"ls -l a names-only z", "ls --json names-only z a", "stats z names-only a",
		"grep x a/f.md file-closed", "hash file-closed a/f.md", "frontmatter a/f.md file-closed",
	} {
		cmd := asAnother(t, append([]string{"--report"}, strings.Fields(args)...)...)
		cmd.Dir = root
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.Error(t, cmd.Run())
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), args)
		require.Regexp(t, "(closed|names-only/f.md): permission denied", errs.String(), args)
		failed := 1
		if strings.Contains(args, "names-only") && !strings.HasPrefix(args, "du") {
			failed = 2 // whether it has a .git is unknown, too
		}
		require.Contains(t, errs.String(), fmt.Sprintf(", %d failed", failed), args)
		require.NotContains(t, out.String(), "names-only/f.md", args)
		for _, dir := range []string{"a", "z"} {
			if strings.Contains(args, " "+dir) && args[0] != 's' {
				require.Contains(t, out.String(), dir, args)
			}
		}
		if args == "stats a closed z" {
			require.Contains(t, out.String(), "2 files")
		}
	}
}
