package discovery

import "strings"

// Nearest returns the known name with the smallest edit distance from name, if the distance is at most limit; otherwise "".
// It ignores case.
func Nearest(name string, known []string, limit int) (best string) {
	name, limit = strings.ToLower(name), limit+1
	for _, k := range known {
		if d := editDistance(name, strings.ToLower(k)); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// editDistance returns the number of letters to add, remove, replace or swap with their neighbour (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// suggestion returns the watchable resource whose name is nearest to n, a name that means nothing; "" if none is near.
func (c *Catalog) suggestion(n Name) string {
	var known []string
	for _, g := range c.groups {
		for _, v := range g.versions {
			for i := range v.resources {
				r := &v.resources[i]
				switch {
				case !r.watchable():
				case n.bare:
					known = append(known, r.Name)
				case g.name == "":
					known = append(known, r.Name+"."+core)
				default:
					known = append(known, r.Name+"."+g.name)
				}
			}
		}
	}
	return Nearest(n.text, known, max(1, len(n.text)/4))
}
