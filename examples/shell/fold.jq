# Folds events into a line for each object, by the rules of docs/events.md, whose steps have these numbers. The order of
# partitions does not matter. Numbers are exact up to 2^53. Messages without a value are not seen: not for compacted topics.
def number: tonumber? // 0;

# 5: whether event $a comes after event $b of the same collection and name.
def greater($a; $b):
  if $a.run != $b.run then ($a.run | number) > ($b.run | number)
  elif $a.resourceversion == $b.resourceversion then ($a.type | test("deleted")) and ($b.type | test("deleted") | not)
  else try (($a.resourceversion | tonumber) > ($b.resourceversion | tonumber)) catch true
  end;

# 1: whether an event is more than a day ahead of the clock.
def ahead: (now + 86400) as $limit | ([.run, .incarnation, .birth, .plan, .edit | number] | max) > $limit * 1000 or .time > ($limit | todate);

reduce (inputs | select(type == "object" and (.type // "" | test("^io\\.kubebridge\\.(resource|collection)\\.[^.]+\\.v1$")) and (has("deadletterreason") | not))
    | if ahead then "ignored, more than a day ahead of the clock: \(.id)\n" | stderr | empty else . end) as $e (
  {births: {}, collections: {}};
  [$e.cluster, $e.collection | tostring] as [$cluster, $id]
  | "\($cluster) \($id)" as $c
  | ($e.incarnation | number) as $i
  | if $e.birth then .births[$cluster] = ([.births[$cluster] // 0, ($e.birth | number)] | max) else . end # 2
  | if $i > (.collections[$c].incarnation // 0) then .collections[$c] = {incarnation: $i, names: {}} else . end # 4
  | if $i < .collections[$c].incarnation or .collections[$c].closed then .
    elif $e.type == "io.kubebridge.collection.closed.v1" then .collections[$c] += {closed: true, names: {}} # 6
    elif $e.type == "io.kubebridge.resource.attributed.v1" then # who made the change that is shown
      if .collections[$c].names[$e.subject].id == $e.data.explains then .collections[$c].names[$e.subject].attribution = $e.data else . end
    elif $e.subject and ((.collections[$c].names[$e.subject] // null) as $last | $last == null or greater($e; $last)) then
      .collections[$c].names[$e.subject] = $e
    else .
    end)
| .births as $births
| [.collections[] | .incarnation as $i | .names[] | select($i >= ($births[.cluster] // 0) and (.type | test("deleted") | not))]
| sort_by(.collection) | reverse
| group_by([.source, .uid])[] | max_by([(.epoch // "1" | number), (.resourceversion | number)]) # 8
| "copy \(.resource)\(if .group then "." + .group else "" end) \(.namespace // "")/\(.name) \(.uid) \(.resourceversion)\(.data.actor // .attribution.request | if . then " by \((.impersonated // .user).name | @json)" else "" end)"
