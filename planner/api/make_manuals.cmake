# cmake -DPROGRAM=... -DFOLDER=... -P make_manuals.cmake: manual pages and completions of PROGRAM, by its hidden options.
unset(ENV{SHARDLINE_DATA})  # names that are offered are those of the sources
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/man1)
function(print file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${FOLDER}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

print(man1/shardline.1 --man-page)
file(READ ${FOLDER}/man1/shardline.1 page)
string(REGEX MATCHALL "\n\\.BR shardline\\\\-[a-z\\-]+ \\(1\\)" commands "${page}")  # all of them, under SEE ALSO
foreach(command ${commands})
  string(REGEX REPLACE ".*shardline\\\\-([a-z\\-]+) .*" "\\1" command "${command}")
  string(REPLACE "\\" "" command "${command}")
  print(man1/shardline-${command}.1 --man-page ${command})
endforeach()
file(GLOB pages ${FOLDER}/man1/*.1)
execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)

print(bash --completion bash)
print(zsh --completion zsh)
print(fish --completion fish)
file(TOUCH ${FOLDER}/made)
