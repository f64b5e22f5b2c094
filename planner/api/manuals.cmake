# Manual pages and completions, which the program prints of its table of commands (reports/cli/command_text.hpp).
set(manuals ${PROJECT_BINARY_DIR}/manuals)
add_custom_command(OUTPUT ${manuals}/made
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:shardline> -DFOLDER=${manuals}
    -P ${CMAKE_CURRENT_LIST_DIR}/make_manuals.cmake
  DEPENDS shardline ${CMAKE_CURRENT_LIST_DIR}/make_manuals.cmake COMMENT "Making manual pages and completions" VERBATIM)
add_custom_target(shardline_manuals ALL DEPENDS ${manuals}/made)

# Where Debian's zsh looks below /usr; below /usr/local that is share/zsh/site-functions.
set(SHARDLINE_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions CACHE STRING "Where zsh looks for completions")
install(DIRECTORY ${manuals}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
install(FILES ${manuals}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME shardline
  COMPONENT program)
install(FILES ${manuals}/zsh DESTINATION ${SHARDLINE_ZSH_DIR} RENAME _shardline COMPONENT program)
install(FILES ${manuals}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME shardline.fish
  COMPONENT program)
