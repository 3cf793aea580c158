# Folds events into a line for each object, by the consumer's rule of docs/events.md.
# kcat mixes partitions: a reset drops what is older than it, in every partition.
def version: [(.epoch // "1" | tonumber), (.resourceversion | tonumber)];
reduce (inputs | select(type == "object" and (.type // "" | startswith("io.kubebridge.")) and (has("deadletterreason") | not))) as $e ({};
  if $e.data.reset then
    with_entries(select(.value.collection != $e.collection or .value.time >= $e.time))
  elif $e.type | startswith("io.kubebridge.collection.") then .
  elif .[$e.uid] and (($e | version) < (.[$e.uid] | version)) then .
  else .[$e.uid] = $e
  end)
| [.[] | select(.type != "io.kubebridge.resource.deleted.v1")]
| sort_by(.source, .subject)[]
| "copy \(.resource)\(if .group then "." + .group else "" end) \(.namespace // "")/\(.name) \(.uid) \(.resourceversion)"
