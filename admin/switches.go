package admin

import (
	"encoding/json"
	"net/http"
)

// Switches can be turned while the process runs.
type Switches interface {
	// Switches gives the state of each switch by its name.
	Switches() map[string]string
	// Turn turns the switches that are named, all of them or none. who is for the log.
	Turn(to map[string]string, who string) error
}

// turner serves the switches: GET shows them, POST turns those that the query or the form
// names. A page of another site cannot make a browser do the latter.
func turner(s Switches) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			if err := turn(s, w, r); err != nil {
				writeText(w, http.StatusBadRequest, err.Error()+"\n")
				return
			}
		default:
			w.Header().Set("Allow", "GET, HEAD, POST")
			writeText(w, http.StatusMethodNotAllowed, "GET shows the switches, POST turns them\n")
			return
		}
		text, err := json.Marshal(s.Switches())
		if err != nil {
			writeText(w, http.StatusInternalServerError, "internal error\n")
			return
		}
		writeJSON(w, http.StatusOK, append(text, '\n'))
	}))
}

// turn takes what the request says. Who asks is the value named by, and the address.
func turn(s Switches, w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if err := r.ParseForm(); err != nil {
		return err
	}
	who := r.RemoteAddr
	to := map[string]string{}
	for name := range r.Form {
		if name == "by" {
			who = r.Form.Get(name) + " at " + who
			continue
		}
		to[name] = r.Form.Get(name)
	}
	return s.Turn(to, who)
}
