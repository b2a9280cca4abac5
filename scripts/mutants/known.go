package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

//go:embed mutants.txt
var list string

// A known mistake is an edit of one function. It is found by tokens: so the list stays valid when formatting or comments change, or
// when code moves to another file.
type known struct {
	name, dir, function, testDir, tests string
	old, mistaken                       string
	survives                            string // why no test notices it
}

func parse(only *regexp.Regexp) (all []known) {
	for block := range strings.SplitSeq(list, "\n\n") {
		var k known
		for line := range strings.Lines(block) {
			rest := strings.TrimPrefix(strings.TrimSuffix(line[1:], "\n")+"\n", " ")
			switch line[0] {
			case '-':
				k.old += rest
			case '+':
				k.mistaken += rest
			case '!':
				k.survives = strings.TrimSpace(rest)
			case '=':
				fail.Must(fmt.Sscan(rest, &k.dir, &k.function, &k.testDir, &k.tests))
			case '#':
				k.name = strings.TrimSpace(rest)
			}
		}
		if k.dir != "" && only.MatchString(k.dir+"/"+k.function+": "+k.name) {
			all = append(all, k)
		}
	}
	return all
}

// plantList plants each known mistake.
func plantList(root string, all []known, plans *[]*plan) (sources []*source, err error) {
	fset, dirs := token.NewFileSet(), map[string][]*source{}
	for _, k := range all {
		if dirs[k.dir] == nil {
			names, _ := filepath.Glob(filepath.Join(root, k.dir, "*.go"))
			for _, name := range names {
				if strings.HasSuffix(name, "_test.go") {
					continue
				}
				text := fail.Must(os.ReadFile(name))
				syntax := fail.Must(parser.ParseFile(fset, name, text, parser.SkipObjectResolution))
				dirs[k.dir] = append(dirs[k.dir], &source{name: name, text: text, syntax: syntax, start: syntax.FileStart})
			}
			sources = append(sources, dirs[k.dir]...)
		}
		*plans = append(*plans, &plan{id: len(*plans) + 1, name: k.function + ": " + k.name, survives: k.survives, dir: filepath.Join(root, k.testDir), tests: k.tests})
		if e := plantKnown(dirs[k.dir], k, len(*plans), (*plans)[len(*plans)-1]); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %s: %w", k.function, k.name, e))
		}
	}
	sources = slices.DeleteFunc(sources, func(s *source) bool { return len(s.inserts) == 0 })
	for _, s := range sources {
		s.insert(s.syntax.Name.End(), s.syntax.Name.End(), -1, importMutant)
	}
	return sources, err
}

func plantKnown(files []*source, k known, id int, plan *plan) error {
	n := 0
	for _, s := range files {
		for _, d := range s.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || funcName(fn) != k.function {
				continue
			}
			body := s.text[fn.Body.Lbrace-s.start : fn.Body.Rbrace+1-s.start]
			places := find(body, []byte(k.old))
			if n += len(places); len(places) != 1 {
				continue // perhaps the function is in another system's file
			}
			edited := string(body[:places[0][0]]) + strings.TrimSuffix(k.mistaken, "\n") + string(body[places[0][1]:])
			plan.file, plan.line = s.name, bytes.Count(s.text[:int(fn.Body.Lbrace-s.start)+places[0][0]], []byte("\n"))+1
			s.addCopy(fn, edited, id)
		}
	}
	if n != 1 {
		return fmt.Errorf("its text is there %d times", n)
	}
	return nil
}

// addCopy adds a copy of fn's body with a mistake: a function that fn calls and returns from, if the mistake is chosen.
func (s *source) addCopy(fn *ast.FuncDecl, body string, id int) {
	body = strings.TrimSpace(body)
	call := fmt.Sprintf("func() %s(); return", body)
	if r := fn.Type.Results; r != nil {
		call = fmt.Sprintf("return func() %s %s()", s.text[r.Pos()-s.start:r.End()-s.start], body)
	}
	s.insert(fn.Body.Lbrace+1, fn.Body.Lbrace+1, id, fmt.Sprintf(" if mutant.On(%d) { %s };", id, call))
}

// find returns each place of part's tokens in text: the begin of the first token and the end of the last.
func find(text, part []byte) (places [][2]int) {
	in, want := tokens(text), tokens(part)
	for len(want) > 0 && want[len(want)-1].text == "\n" {
		want = want[:len(want)-1]
	}
	for i := range len(in) - len(want) + 1 {
		if len(want) > 0 && slices.EqualFunc(in[i:i+len(want)], want, func(a, b tok) bool { return a.text == b.text }) {
			places = append(places, [2]int{in[i].at, in[i+len(want)-1].at + len(in[i+len(want)-1].text)})
		}
	}
	return places
}

type tok struct {
	at   int
	text string
}

func tokens(text []byte) (all []tok) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, nil, 0)
	for {
		pos, t, lit := s.Scan()
		if t == token.EOF {
			return all
		}
		if t.IsOperator() && t != token.SEMICOLON || lit == "" {
			lit = t.String()
		}
		all = append(all, tok{file.Offset(pos), lit})
	}
}

// funcName is F, or T.M for a method.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	name, _, _ := strings.Cut(types.ExprString(fn.Recv.List[0].Type), "[") // without type parameters
	return strings.TrimPrefix(name, "*") + "." + fn.Name.Name
}
