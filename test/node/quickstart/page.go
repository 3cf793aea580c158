package main

import (
	"fmt"
	"regexp"
	"strings"
)

// block is one code block of a page, as it is printed, and what a comment before it says about running it:
//
//	<!-- quickstart: skip REASON -->            it is not run
//	<!-- quickstart: file NAME -->              it is what the page says to save under that name
//	<!-- quickstart: terminal 2 until TEXT -->  it runs until its output has that text, and goes on until the next block
//	                                            of the same terminal, which presses Ctrl-C first
//	<!-- quickstart: terminal 3 and terminal 2 prints TEXT -->   it succeeds, and another terminal prints that text
//
// The terminal is 1 where none is named. A block without a comment runs to its end and has to succeed.
type block struct {
	line     int
	text     string
	skip     string
	file     string
	terminal string
	until    string
	other    string // the terminal that has to print prints
	prints   string
}

var (
	comment  = regexp.MustCompile(`^\s*<!-- quickstart: (.*) -->$`)
	fence    = regexp.MustCompile("^( *)```")
	terminal = regexp.MustCompile(`^(?:terminal (\d+)(?: |$))?(?:until (.+)|and terminal (\d+) prints (.+))?$`)
)

// blocks returns the code blocks of a Markdown page: fenced ones, and lines that are indented by four spaces after an empty line.
func blocks(page string) ([]block, error) {
	var all []block
	said := ""
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		var text []string
		first := i
		line := lines[i]
		switch {
		case comment.MatchString(line):
			said = comment.FindStringSubmatch(line)[1]
			continue
		case strings.TrimSpace(line) == "":
			continue
		case fence.MatchString(line):
			text, i = fenced(lines, i)
		case strings.HasPrefix(line, "    ") && i > 0 && strings.TrimSpace(lines[i-1]) == "":
			text, i = indented(lines, i)
		}
		if text != nil {
			b := block{line: first + 1, text: strings.Join(text, "\n") + "\n"}
			if err := b.say(said); err != nil {
				return nil, fmt.Errorf("line %d: %w", b.line, err)
			}
			all = append(all, b)
		} else if said != "" {
			return nil, fmt.Errorf("line %d: a quickstart comment, and no code block after it", first+1)
		}
		said = ""
	}
	return all, nil
}

// fenced returns the lines of a fenced block that begins at line i, and its last line.
func fenced(lines []string, i int) (text []string, last int) {
	indent := fence.FindStringSubmatch(lines[i])[1]
	text = []string{}
	for i++; i < len(lines) && !fence.MatchString(lines[i]); i++ {
		text = append(text, strings.TrimPrefix(lines[i], indent))
	}
	return text, i
}

// indented returns the lines of an indented block that begins at line i, and its last line.
func indented(lines []string, i int) (text []string, last int) {
	for ; i < len(lines) && strings.HasPrefix(lines[i], "    "); i++ {
		text = append(text, strings.TrimPrefix(lines[i], "    "))
	}
	return text, i - 1
}

// say sets what a comment says.
func (b *block) say(comment string) error {
	word, rest, _ := strings.Cut(comment, " ")
	b.terminal = "1"
	switch word {
	case "":
	case "skip":
		b.skip = rest
	case "file":
		b.file = rest
	default:
		m := terminal.FindStringSubmatch(comment)
		if m == nil {
			return fmt.Errorf("the comment %q is none of: skip REASON; file NAME; terminal N until TEXT", comment)
		}
		if m[1] != "" {
			b.terminal = m[1]
		}
		b.until, b.other, b.prints = m[2], m[3], m[4]
		return nil
	}
	if word != "" && rest == "" {
		return fmt.Errorf("%s needs a word after it", word)
	}
	return nil
}
