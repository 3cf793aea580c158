package reconcile

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Unless a case says otherwise, the object that is seen in this file has uid u, version 20 and digest 7, and is seen in run
// 3. Inventory entries and intents are of run 2.

func entryOf(status Status, version string, edits ...func(*Object)) *Object {
	o := &Object{UID: "u", Version: version, Digest: digestOf(5), Status: status, Judged: 2, APIVersion: "v1", Kind: "Thing"}
	if version == "20" {
		o.Digest = digestOf(7)
	}
	if o.known() {
		o.Run, o.At, o.AtDigest, o.Significant = 2, o.Version, o.Digest, digestOf(100+o.Digest.number())
	}
	for _, edit := range edits {
		edit(o)
	}
	return o
}

func intentOf(version string, edits ...func(*Intent)) []Intent {
	i := Intent{Object: *entryOf(Published, version), Epoch: 1}
	for _, edit := range edits {
		edit(&i)
	}
	return []Intent{i}
}

func intentOfUID(uid, version string) []Intent {
	return intentOf(version, func(i *Intent) { i.UID = uid })
}

// digestOf returns a digest for each number, and the zero value for 0.
func digestOf[N int | uint64](n N) (d Digest) {
	binary.LittleEndian.PutUint64(d[:], uint64(n))
	return d
}

// number reverses digestOf.
func (d Digest) number() uint64 { return binary.LittleEndian.Uint64(d[:]) }

func uid(s string) func(*Object)           { return func(o *Object) { o.UID = s } }
func digest(n uint64) func(*Object)        { return func(o *Object) { o.Digest = digestOf(n) } }
func judged(run uint64) func(*Object)      { return func(o *Object) { o.Judged = run } }
func publishedIn(run uint64) func(*Object) { return func(o *Object) { o.Run, o.Judged = run, run } }

func publishedAt(version string) func(*Object) {
	return func(o *Object) {
		o.At, o.AtDigest = version, digestOf(5)
		if version == "20" {
			o.AtDigest = digestOf(7)
		}
	}
}

// seenRows are the rows of the table in the comment of [Sighting], with inventory entries for each.
var seenRows = []struct {
	entry, compared, watch, list, resync string

	known  []*Object
	doubts []Intent
}{
	{"none", "–", "announce", "announce 1", "–", []*Object{nil}, nil},
	{"another uid", "entry is not older", "–", "history 3", "–", []*Object{entryOf(Published, "30", uid("o")), entryOf(Skipped, "30", uid("o"))}, nil},
	{"another uid", "otherwise", "end, announce", "end, announce", "–", []*Object{entryOf(Published, "10", uid("o")), entryOf(Outdated, "10", uid("o"))}, nil},
	{
		"any", "entry is newer", "–", "history 3", "–",
		[]*Object{entryOf(Published, "30"), entryOf(Outdated, "30"), entryOf(Unpublished, "30"), entryOf(Skipped, "30")},
		nil,
	},
	{
		"any", "same version, judged in this run, other digest", "–", "run 7", "–",
		[]*Object{entryOf(Published, "20", digest(6), publishedIn(3)), entryOf(Outdated, "20", digest(6), publishedAt("10"), judged(3)), entryOf(Unpublished, "20", digest(6), judged(3))},
		nil,
	},
	{"published", "as published", "–", "– 6 8", "present 2", []*Object{entryOf(Published, "20"), entryOf(Published, "20", judged(3))}, nil},
	{"published", "otherwise", "modified", "modified", "–", []*Object{entryOf(Published, "10"), entryOf(Published, "10", digest(7), func(o *Object) { o.AtDigest = digestOf(7) }), entryOf(Published, "10", publishedIn(3)), entryOf(Published, "19", publishedAt("10"))}, nil},
	{"outdated", "as published", "–", "– 6 8", "modified 4", []*Object{entryOf(Outdated, "20", digest(6), publishedAt("20"))}, nil},
	{"outdated", "same version", "–", "modified 4", "modified 4", []*Object{entryOf(Outdated, "20", publishedAt("10"))}, nil},
	{"outdated", "otherwise", "modified", "modified", "–", []*Object{entryOf(Outdated, "10"), entryOf(Outdated, "10", judged(3))}, nil},
	{"unpublished", "same version", "–", "announce 4", "announce 4", []*Object{entryOf(Unpublished, "20")}, nil},
	{"unpublished", "otherwise", "announce", "announce", "–", []*Object{entryOf(Unpublished, "10"), entryOf(Unpublished, "10", judged(3))}, nil},
	{"skipped", "same version and digest", "–", "–", "–", []*Object{entryOf(Skipped, "20"), entryOf(Skipped, "20", judged(3))}, nil},
	{"skipped", "same version", "–", "announce", "announce", []*Object{entryOf(Skipped, "20", digest(6))}, nil},
	{"skipped", "otherwise", "announce", "announce", "–", []*Object{entryOf(Skipped, "10"), entryOf(Skipped, "10", digest(7))}, nil},
	{
		"in doubt", "entry is published and no deletion is in doubt", "as above", "modified", "as above",
		[]*Object{entryOf(Published, "10"), entryOf(Outdated, "10")},
		intentOf("19"),
	},
	{
		"in doubt", "otherwise", "as above", "announce 5", "as above",
		[]*Object{nil, entryOf(Unpublished, "10"), entryOf(Skipped, "10")},
		intentOf("19"),
	},
	{
		"in doubt", "otherwise", "as above", "announce 5", "as above",
		[]*Object{nil, entryOf(Published, "10")},
		intentOf("19", func(i *Intent) { i.Deleted = true }),
	},
}

// TestSeenRows decides every cell of the table of [Sighting]. A wrong cell publishes an object twice,
// with a wrong type, or never.
func TestSeenRows(t *testing.T) {
	comment := commentTable(t, "object.go", "entry", "compared with the object", "watch", "list", "resync")
	var text [][]string
	for _, row := range seenRows {
		cells := []string{row.entry, row.compared, row.watch, row.list, row.resync}
		if len(text) == 0 || !slices.Equal(text[len(text)-1], cells) {
			text = append(text, cells)
		}
		for _, known := range row.known {
			for origin, cell := range []string{row.watch, row.list, row.resync} {
				for _, first := range []bool{false, true} {
					decideCell(t, cell, view{memory: &memory{}, run: 3, sameHistory: true, first: first}, known, row.doubts, Origin(origin))
				}
			}
		}
	}
	if got, want := fmt.Sprintf("%q", text), fmt.Sprintf("%q", comment); got != want {
		t.Errorf("the rows of this test are\n%s\nand the comment of Sighting has\n%s", got, want)
	}
}

func decideCell(t *testing.T, cell string, v view, known *Object, doubts []Intent, origin Origin) {
	t.Helper()
	s := seeing(origin)
	got := v.decide(known, doubts, s)
	if cell == "as above" {
		if want := v.decide(known, nil, s); got.text() != want.text() {
			t.Errorf("%v in doubt, origin %d: %s, want the decision without intents: %s", doubts, origin, got.text(), want.text())
		}
		return
	}
	what := strings.TrimRight(cell, " 0123456789")
	var want []string
	next := "published u 20/7, bus has 20/7 of run 3, significant 107, judged 3"
	for part := range strings.SplitSeq(what, ", ") {
		switch part {
		case "–":
			next = "as before"
			if strings.HasSuffix(cell, "8") && known.Status == Outdated {
				next = "published u 20/7, bus has 20/7 of run 2, significant " + fmt.Sprint(known.Significant.number()) + ", judged 3"
			}
		case "history", "run":
			want, next = append(want, part), ""
		case "end":
			want = append(want, "deleted o of 2/10 at 20")
		case "announce":
			want = append(want, v.announcement().String()+" u of 3/20 at 20")
		default:
			want = append(want, part+" u of 3/20 at 20")
		}
	}
	if next != "" {
		want = append(want, "entry: "+next)
	}
	if got := got.text(); got != strings.Join(want, "; ") {
		t.Errorf("%s (origin %d, first list: %t), entry %s:\n got  %s\n want %s", cell, origin, v.first, known.text(), got, strings.Join(want, "; "))
	}
}

func seeing(origin Origin, edits ...func(*Sighting)) *Sighting {
	s := &Sighting{
		Form: Seen, Origin: origin, Key: "a", UID: "u", Version: "20", Digest: digestOf(7), Significant: digestOf(107), APIVersion: "v1", Kind: "Thing", Body: "body",
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// text returns a verdict in words.
func (r *verdict) text() string {
	switch {
	case r.newHistory:
		return "history"
	case r.newRun:
		return "run"
	}
	var parts []string
	for i := range r.events {
		e := &r.events[i]
		part := fmt.Sprintf("%s %s of %d/%s at %s", e.Type, e.Object.UID, e.Object.Run, e.Object.At, e.Version)
		if e.Body != "body" || e.Key != "a" {
			part += ", without its body"
		}
		if e.DeadLetter {
			part += ", a dead letter"
		}
		if e.Type == event.Deleted && e.Fate != Gone {
			part += [...]string{Left: ", left", Unknown: ", unknown"}[e.Fate]
		}
		parts = append(parts, part)
	}
	switch {
	case !r.changed && len(r.events) == 0:
		parts = append(parts, "entry: as before")
	default:
		parts = append(parts, "entry: "+r.entry.text())
	}
	return strings.Join(parts, "; ")
}

func (o *Object) text() string {
	if o == nil {
		return "none"
	}
	text := fmt.Sprintf("%s %s %s/%d", [...]string{Published: "published", Outdated: "outdated", Unpublished: "unpublished", Skipped: "skipped"}[o.Status], o.UID, o.Version, o.Digest.number())
	if o.Run != 0 || o.At != "" || !o.AtDigest.IsZero() || !o.Significant.IsZero() {
		text += fmt.Sprintf(", bus has %s/%d of run %d, significant %d", o.At, o.AtDigest.number(), o.Run, o.Significant.number())
	}
	return text + fmt.Sprintf(", judged %d", o.Judged)
}

// commentTable reads a table from a comment, and returns the cells of its rows. A cell begins below the first character of
// its column's name. A row without a first cell continues the row above it.
func commentTable(t *testing.T, file string, columns ...string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var from []int
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if from == nil {
			from = columnsAt(line, columns)
			continue
		}
		cells := cut([]rune(line), from)
		switch {
		case strings.Join(cells, "") == "":
			return rows
		case cells[0] == "":
			last := rows[len(rows)-1]
			for i := range last {
				last[i] = strings.TrimSpace(last[i] + " " + cells[i])
			}
		default:
			rows = append(rows, cells)
		}
	}
	t.Fatalf("%s has no table with the columns %q", file, columns)
	return nil
}

// columnsAt returns where the names of columns begin in the line of a comment, nil if the line does not have them all.
func columnsAt(line string, columns []string) (at []int) {
	begin := 0
	for _, name := range columns {
		i := strings.Index(line[begin:], name)
		if i < 0 {
			return nil
		}
		begin += i
		at = append(at, len([]rune(line[:begin])))
		begin += len(name)
	}
	return at
}

func cut(line []rune, at []int) (cells []string) {
	for i, from := range at {
		to := len(line)
		if i+1 < len(at) {
			to = min(to, at[i+1])
		}
		cell := ""
		if from < to {
			cell = strings.TrimSpace(string(line[from:to]))
		}
		cells = append(cells, cell)
	}
	return cells
}

func minorly(s *Sighting) { preparedOf(s).minor = func(*Object) bool { return true } }
func majorly(s *Sighting) { preparedOf(s).minor = func(*Object) bool { return false } }
func deadly(s *Sighting)  { s.DeadLetter = true }
func passing(t event.Type) func(*Sighting) {
	return func(s *Sighting) { preparedOf(s).passes = func(u event.Type) bool { return t == u } }
}

func filteredOut(s *Sighting) { preparedOf(s).passes = func(event.Type) bool { return false } }

func deletionAt(version string) func(*Sighting) {
	return func(s *Sighting) { s.Form, s.Version = Ended, version }
}

func lackingAt(version string, fates map[string]Fate) func(*Sighting) {
	return func(s *Sighting) {
		s.Form, s.Version, s.UID = Lacking, version, ""
		if fates != nil {
			s.Fates = func(uid string) Fate { return fates[uid] }
		}
	}
}

var notes = func() []note {
	normal := view{memory: &memory{}, run: 3, sameHistory: true}
	complete := view{memory: &memory{}, run: 3, sameHistory: true, complete: "20"}
	other := view{memory: &memory{}, run: 3, history: 3}
	first := view{memory: &memory{}, run: 3, history: 3, first: true}
	skipping := view{memory: &memory{}, run: 3, history: 3, first: true, skip: true}
	resync := view{memory: &memory{}, run: 3, sameHistory: true, resync: true}
	deleted := func(i *Intent) { i.Deleted = true }
	inRun := func(run uint64) func(*Intent) { return func(i *Intent) { i.Run = run } }
	const news = "entry: published u 20/7, bus has 20/7 of run 3, significant 107, judged 3"
	return []note{
		{"1", "a listed object that the inventory lacks", complete, nil, nil, seeing(List), "history"},
		{"1", "a listed object that the inventory has under another uid", complete, entryOf(Published, "10", uid("o")), nil, seeing(List), "history"},
		{"1", "it is later than the inventory", view{memory: &memory{}, run: 3, sameHistory: true, complete: "19"}, nil, nil, seeing(List), "added u of 3/20 at 20; " + news},
		{"1", "it is in the inventory", complete, entryOf(Published, "20"), nil, seeing(List), "entry: as before"},
		{"1", "a watch proves nothing", complete, nil, nil, seeing(Watch), "added u of 3/20 at 20; " + news},
		{"1", "an object in doubt proves nothing", complete, nil, intentOf("10"), seeing(List), "added u of 3/20 at 20; " + news},

		{"2", "published in this run", normal, entryOf(Published, "20", publishedIn(3)), nil, seeing(Resync), "entry: as before"},

		{"3", "an entry of the history before is newer", other, entryOf(Published, "30"), nil, seeing(List), "modified u of 3/20 at 20; " + news},
		{"3", "the same, and judged in this run", other, entryOf(Published, "30", judged(3)), nil, seeing(List), "history"},
		{"3", "an entry of another uid is as old", normal, entryOf(Published, "20", uid("o")), nil, seeing(List), "history"},
		{"3", "the same, of the history before", other, entryOf(Published, "20", uid("o")), nil, seeing(List), "deleted o of 2/20 at 20; added u of 3/20 at 20; " + news},
		{"3", "another uid is in doubt and as old", normal, nil, intentOfUID("o", "20"), seeing(List), "history"},
		{"3", "another uid is in doubt and older", normal, nil, intentOfUID("o", "19"), seeing(List), "deleted o of 2/19 at 20; added u of 3/20 at 20; " + news},
		{"3", "another uid is in doubt, of the history before", other, nil, intentOfUID("o", "20"), seeing(List), "deleted o of 2/20 at 20; added u of 3/20 at 20; " + news},
		{"3", "another uid is in doubt, of this run", other, nil, intentOf("20", func(i *Intent) { i.UID, i.Run = "o", 3 }), seeing(List), "history"},
		{"3", "what is in doubt is newer", normal, nil, intentOf("30"), seeing(List), "history"},
		{"3", "what is in doubt is newer, and of the history before", other, nil, intentOf("30"), seeing(List), "added u of 3/20 at 20; " + news},
		{"3", "an entry is newer, and the last complete list was of this history", view{memory: &memory{}, run: 3, history: 3, sameHistory: true}, entryOf(Published, "30"), nil, seeing(List), "history"},
		{"3", "what is in doubt is newer, and the last complete list was of this history", view{memory: &memory{}, run: 3, history: 3, sameHistory: true}, nil, intentOf("30"), seeing(List), "history"},
		{"3", "an entry is newer, and of an earlier run of this history", view{memory: &memory{}, run: 3, history: 2}, entryOf(Published, "30"), nil, seeing(List), "history"},
		{"3", "what is in doubt is newer, and of an earlier run of this history", view{memory: &memory{}, run: 3, history: 2}, nil, intentOf("30"), seeing(List), "history"},
		{"3", "the object is in doubt, and its entry newer", other, entryOf(Published, "30"), intentOf("30"), seeing(List), "modified u of 3/20 at 20; " + news},
		{"3", "another object's entry is newer, and the object is in doubt", other, entryOf(Published, "30", uid("o")), intentOf("30"), seeing(List), "deleted o of 2/30 at 20; added u of 3/20 at 20; " + news},
		{"3", "another object's entry is newer and of no consumer", other, entryOf(Unpublished, "30", uid("o")), nil, seeing(List), "added u of 3/20 at 20; " + news},

		{"4", "unpublished, tried in this run", normal, entryOf(Unpublished, "20", judged(3)), nil, seeing(List), "entry: as before"},
		{"4", "outdated, tried in this run", normal, entryOf(Outdated, "20", publishedAt("10"), judged(3)), nil, seeing(List), "entry: as before"},
		{"4", "outdated, tried in this resync", normal, entryOf(Outdated, "20", publishedAt("10"), judged(3)), nil, seeing(Resync), "entry: as before"},

		{"5", "a later deletion of the object is in doubt", normal, entryOf(Published, "10"), intentOf("15", deleted), seeing(List), "added u of 3/20 at 20; " + news},
		{
			"5", "an older object of the name is in doubt beside the entry", normal, entryOf(Published, "20"), intentOfUID("o", "10"), seeing(List),
			"deleted o of 2/10 at 20; entry: published u 20/7, bus has 20/7 of run 2, significant 107, judged 2",
		},
		{
			"5", "a later object of the name is in doubt beside the entry, from the history before", other, entryOf(Published, "20"), intentOfUID("o", "30"), seeing(List),
			"deleted o of 2/30 at 20; added u of 3/20 at 20; " + news,
		},
		{
			"5", "an object of the name is in doubt with the same version, from the history before", other, entryOf(Published, "20"), intentOfUID("o", "20"), seeing(List),
			"deleted o of 2/20 at 20; added u of 3/20 at 20; " + news,
		},
		{
			"5", "an object of the name is in doubt from a later run, at a lower version", other, entryOf(Published, "20", publishedIn(1)), intentOfUID("o", "10"), seeing(List),
			"deleted o of 2/10 at 20; added u of 3/20 at 20; " + news,
		},
		{
			"5", "an object of the name is in doubt from an earlier run, at a later version", other, entryOf(Published, "20", publishedIn(3)), intentOfUID("o", "30"), seeing(List),
			"deleted o of 2/30 at 20; entry: published u 20/7, bus has 20/7 of run 3, significant 107, judged 3",
		},
		{
			"5", "two of a name are in doubt: in the order of their publications", normal, entryOf(Published, "12", uid("p")), intentOfUID("o", "10"), seeing(List),
			"deleted o of 2/10 at 20; deleted p of 2/12 at 20; added u of 3/20 at 20; " + news,
		},

		{"6", "as published, and the filter has changed", normal, entryOf(Published, "20"), nil, seeing(List, filteredOut), "deleted u of 2/20 at 20, left; entry: unpublished u 20/7, judged 3"},
		{"6", "as published, and the filter lets it through", normal, entryOf(Published, "20"), nil, seeing(List, passing(event.Added)), "entry: as before"},

		{"7", "another body at one version, in another run", normal, entryOf(Published, "20", digest(6), func(o *Object) { o.AtDigest = digestOf(6) }), nil, seeing(List), "modified u of 3/20 at 20; " + news},
		{"7", "a skipped object with another body", normal, entryOf(Skipped, "20", digest(6), judged(3)), nil, seeing(List), "run"},
		{"7", "in doubt with another body", normal, nil, intentOf("20", inRun(3), func(i *Intent) { i.Digest, i.AtDigest = digestOf(6), digestOf(6) }), seeing(List), "run"},
		{"7", "in doubt with another body, from the watch", normal, nil, intentOf("20", inRun(3), func(i *Intent) { i.Digest, i.AtDigest = digestOf(6), digestOf(6) }), seeing(Watch), "run"},
		{"7", "in doubt with this body, from the watch", normal, nil, intentOf("20", inRun(3)), seeing(Watch), "added u of 3/20 at 20; " + news},
		{"7", "its deletion is in doubt, after a minor change, from the watch", normal, nil, intentOf("20", inRun(3), deleted, func(i *Intent) { i.Digest = digestOf(6) }), seeing(Watch), "added u of 3/20 at 20; " + news},
		{"7", "its deletion is in doubt, from the watch", normal, nil, intentOf("20", inRun(3), deleted), seeing(Watch), "added u of 3/20 at 20; " + news},
		{"7", "in doubt with another body, in a resync", normal, entryOf(Published, "20"), intentOf("20", inRun(3), func(i *Intent) { i.Digest, i.AtDigest = digestOf(6), digestOf(6) }), seeing(Resync), "present u of 3/20 at 20; " + news},
		{"7", "in doubt with this body", normal, nil, intentOf("20", inRun(3)), seeing(List), "added u of 3/20 at 20; " + news},
		{"7", "its deletion is in doubt", normal, nil, intentOf("20", inRun(3), deleted), seeing(List), "run"},
		{"7", "its deletion is in doubt, of another run", normal, nil, intentOf("20", deleted), seeing(List), "added u of 3/20 at 20; " + news},
		{"7", "in doubt at another version", normal, nil, intentOf("15", inRun(3)), seeing(List), "added u of 3/20 at 20; " + news},

		{"8", "an older state is back in another history", other, entryOf(Published, "30", publishedAt("20")), nil, seeing(List), "entry: published u 20/7, bus has 20/7 of run 2, significant 105, judged 3"},
		{"8", "an older state is back behind a dead letter", other, entryOf(Outdated, "30", publishedAt("20")), nil, seeing(List), "entry: published u 20/7, bus has 20/7 of run 2, significant 105, judged 3"},
		{"8", "an older version with another body is another state", other, entryOf(Published, "30", publishedAt("20"), func(o *Object) { o.AtDigest = digestOf(6) }), nil, seeing(List), "modified u of 3/20 at 20; " + news},

		{"skip", "the first list", skipping, nil, nil, seeing(List), "entry: skipped u 20/7, judged 3"},
		{"skip", "the first list begins again", skipping, entryOf(Skipped, "20", judged(3)), nil, seeing(List), "entry: as before"},
		{"skip", "in doubt", skipping, nil, intentOf("19"), seeing(List), "present u of 3/20 at 20; " + news},
		{"skip", "the first list, published", first, nil, nil, seeing(List), "present u of 3/20 at 20; " + news},
		{"skip", "a later list", view{memory: &memory{}, run: 3, skip: true}, nil, nil, seeing(List), "added u of 3/20 at 20; " + news},

		{"filter", "new", normal, nil, nil, seeing(Watch, filteredOut), "entry: unpublished u 20/7, judged 3"},
		{"filter", "first, and asked as added", first, nil, nil, seeing(List, passing(event.Added)), "present u of 3/20 at 20; " + news},
		{"filter", "modified", normal, entryOf(Published, "10"), nil, seeing(Watch, passing(event.Modified)), "modified u of 3/20 at 20; " + news},
		{"filter", "modified, and only added passes", normal, entryOf(Published, "10"), nil, seeing(Watch, passing(event.Added)), "deleted u of 2/10 at 20, left; entry: unpublished u 20/7, judged 3"},
		{"filter", "left out before", normal, entryOf(Unpublished, "10"), nil, seeing(Watch, filteredOut), "entry: unpublished u 20/7, judged 3"},
		{"filter", "in doubt", normal, nil, intentOf("19"), seeing(List, filteredOut), "deleted u of 2/19 at 20, left; entry: unpublished u 20/7, judged 3"},
		{"filter", "in doubt, and a watch does not look", normal, nil, intentOf("19"), seeing(Watch, filteredOut), "entry: unpublished u 20/7, judged 3"},
		{"filter", "in doubt behind the entry", normal, entryOf(Published, "10"), intentOf("19"), seeing(List, filteredOut), "deleted u of 2/19 at 20, left; entry: unpublished u 20/7, judged 3"},
		{"filter", "in doubt behind the entry, of a watch", normal, entryOf(Published, "10"), intentOf("19"), seeing(Watch, filteredOut), "deleted u of 2/10 at 20, left; entry: unpublished u 20/7, judged 3"},
		{
			"filter", "two ends in the order of their publications", other, nil, append(intentOfUID("o", "19"), intentOf("15")...), seeing(List, filteredOut),
			"deleted u of 2/15 at 20, left; deleted o of 2/19 at 20; entry: unpublished u 20/7, judged 3",
		},

		{"ignore", "a minor change", normal, entryOf(Published, "10"), nil, seeing(Watch, minorly), "entry: published u 20/7, bus has 10/5 of run 2, significant 105, judged 3"},
		{"ignore", "a minor change with the same digest", normal, entryOf(Published, "10", digest(7)), nil, seeing(List, minorly), "entry: published u 20/7, bus has 10/5 of run 2, significant 105, judged 3"},
		{"ignore", "a minor change without a version", normal, entryOf(Published, "20", digest(6), publishedAt("10")), nil, seeing(List, minorly), "entry: published u 20/7, bus has 10/5 of run 2, significant 107, judged 3"},
		{"ignore", "a major change", normal, entryOf(Published, "10"), nil, seeing(Watch, majorly), "modified u of 3/20 at 20; " + news},
		{"ignore", "listed as it was moved", normal, entryOf(Published, "20", publishedAt("10")), nil, seeing(List, minorly), "entry: as before"},
		{"ignore", "listed as it was moved, and no longer ignored", normal, entryOf(Published, "20", publishedAt("10")), nil, seeing(List, majorly), "modified u of 3/20 at 20; " + news},
		{"ignore", "listed as it was moved, and nothing is ignored any more", normal, entryOf(Published, "20", publishedAt("10")), nil, seeing(List), "modified u of 3/20 at 20; " + news},
		{"ignore", "a minor change in a resync", resync, entryOf(Published, "10"), nil, seeing(Watch, minorly), "present u of 3/20 at 20; " + news},
		{"ignore", "a minor change with the same digest in a resync", resync, entryOf(Published, "10", digest(7)), nil, seeing(Watch, minorly), "present u of 3/20 at 20; " + news},
		{"ignore", "a minor change in a resync that has published it", resync, entryOf(Published, "10", publishedIn(3)), nil, seeing(Watch, minorly), "entry: published u 20/7, bus has 10/5 of run 3, significant 105, judged 3"},
		{"ignore", "a minor change of an object in doubt", normal, entryOf(Published, "10"), intentOf("15"), seeing(List, minorly), "modified u of 3/20 at 20; " + news},
		{"ignore", "a minor change behind a dead letter", normal, entryOf(Outdated, "10"), nil, seeing(Watch, minorly), "modified u of 3/20 at 20; " + news},
		{"ignore", "a minor change of what is not published", normal, entryOf(Unpublished, "10"), nil, seeing(Watch, minorly), "added u of 3/20 at 20; " + news},
		{"ignore", "a minor change that the filter leaves out", normal, entryOf(Published, "10"), nil, seeing(Watch, minorly, filteredOut), "deleted u of 2/10 at 20, left; entry: unpublished u 20/7, judged 3"},

		{"dead letter", "new", normal, nil, nil, seeing(Watch, deadly), "added u of 3/20 at 20, a dead letter; entry: unpublished u 20/7, judged 3"},
		{"dead letter", "published", normal, entryOf(Published, "10"), nil, seeing(Watch, deadly), "modified u of 3/20 at 20, a dead letter; entry: outdated u 20/7, bus has 10/5 of run 2, significant 105, judged 3"},
		{"dead letter", "outdated", normal, entryOf(Outdated, "15", publishedAt("10")), nil, seeing(Watch, deadly), "modified u of 3/20 at 20, a dead letter; entry: outdated u 20/7, bus has 10/5 of run 2, significant 105, judged 3"},
		{"dead letter", "unpublished", normal, entryOf(Unpublished, "10"), nil, seeing(Watch, deadly), "added u of 3/20 at 20, a dead letter; entry: unpublished u 20/7, judged 3"},
		{"dead letter", "in doubt", normal, nil, intentOf("19"), seeing(List, deadly), "added u of 3/20 at 20, a dead letter; entry: outdated u 20/7, bus has 19/0 of run 2, significant 0, judged 3"},
		{"dead letter", "in doubt, from the watch", normal, nil, intentOf("19"), seeing(Watch, deadly), "added u of 3/20 at 20, a dead letter; entry: outdated u 20/7, bus has 19/0 of run 2, significant 0, judged 3"},

		{"ended", "published", normal, entryOf(Published, "10"), nil, seeing(Watch, deletionAt("20")), "deleted u of 2/10 at 20; entry: none"},
		{"ended", "left the selection", normal, entryOf(Published, "10"), nil, seeing(Watch, deletionAt("20"), func(s *Sighting) { s.Fate = Left }), "deleted u of 2/10 at 20, left; entry: none"},
		{"ended", "outdated", normal, entryOf(Outdated, "15", publishedAt("10")), nil, seeing(Watch, deletionAt("20")), "deleted u of 2/10 at 20; entry: none"},
		{"ended", "not published", normal, entryOf(Unpublished, "10"), nil, seeing(Watch, deletionAt("20")), "entry: none"},
		{"ended", "skipped", normal, entryOf(Skipped, "10"), nil, seeing(Watch, deletionAt("20")), "entry: none"},
		{"ended", "not in the inventory", normal, nil, nil, seeing(Watch, deletionAt("20")), "entry: as before"},
		{"ended", "of another uid", normal, entryOf(Published, "10", uid("o")), nil, seeing(Watch, deletionAt("20")), "entry: as before"},
		{"ended", "at the version of the entry", normal, entryOf(Published, "20"), nil, seeing(Watch, deletionAt("20")), "deleted u of 2/20 at 20; entry: none"},
		{"ended", "older than the entry", normal, entryOf(Published, "30"), nil, seeing(Watch, deletionAt("20")), "entry: as before"},

		{"lacking", "published", normal, entryOf(Published, "10"), nil, seeing(List, lackingAt("20", nil)), "deleted u of 2/10 at 20; entry: none"},
		{"lacking", "left the selection", normal, entryOf(Published, "10"), nil, seeing(List, lackingAt("20", map[string]Fate{"u": Left})), "deleted u of 2/10 at 20, left; entry: none"},
		{"lacking", "not published", normal, entryOf(Unpublished, "10"), nil, seeing(List, lackingAt("20", nil)), "entry: none"},
		{"lacking", "nothing", normal, nil, nil, seeing(List, lackingAt("20", nil)), "entry: as before"},
		{"lacking", "in doubt", normal, nil, intentOf("19"), seeing(List, lackingAt("20", nil)), "deleted u of 2/19 at 20; entry: none"},
		{"lacking", "its deletion in doubt", normal, nil, intentOf("19", deleted), seeing(List, lackingAt("20", nil)), "deleted u of 2/19 at 20; entry: none"},
		{"lacking", "in doubt behind the entry", normal, entryOf(Published, "10"), intentOf("19"), seeing(List, lackingAt("20", nil)), "deleted u of 2/19 at 20; entry: none"},
		{
			"lacking", "several, each with its own end", normal, entryOf(Published, "12", uid("p")), append(intentOf("19"), intentOfUID("o", "10")...),
			seeing(List, lackingAt("20", map[string]Fate{"u": Left, "p": Unknown})), "deleted o of 2/10 at 20; deleted p of 2/12 at 20, unknown; deleted u of 2/19 at 20, left; entry: none",
		},
	}
}()

// note is a case of a rule that the comment of [Sighting] states below its table. rule is the number of the rule, or a word
// for a rule without a number.
type note struct {
	rule, name string
	view       view
	known      *Object
	doubts     []Intent
	s          *Sighting
	want       string
}

// TestNotes decides the cases that the comment of [Sighting] states below its table. Each number in
// the table has at least one.
func TestNotes(t *testing.T) {
	tested := map[string]bool{}
	for _, n := range notes {
		tested[n.rule] = true
		r := n.view.decide(n.known, n.doubts, n.s)
		if got := r.text(); got != n.want {
			t.Errorf("%s: %s:\n got  %s\n want %s", n.rule, n.name, got, n.want)
		}
	}
	for _, row := range seenRows {
		for _, number := range regexp.MustCompile(`\d`).FindAllString(row.list+row.resync, -1) {
			if !tested[number] {
				t.Errorf("no case of note %s", number)
			}
		}
	}
}

// TestPublicationsInOrder: the ends of the publications of one name must be in the order of the publications, because
// consumers ignore the end of a publication after the end of a later one.
func TestPublicationsInOrder(t *testing.T) {
	list := []Object{{Run: 1, At: "30"}, {Run: 2, At: "9"}, {Run: 2, At: "10"}, {Run: 3, At: "10"}}
	for i := range list {
		for j := range list {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := comparePublications(list[i], list[j]); got != want {
				t.Errorf("%d/%s and %d/%s: %d, want %d", list[i].Run, list[i].At, list[j].Run, list[j].At, got, want)
			}
		}
	}
}
